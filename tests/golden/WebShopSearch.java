/*
 * Writes the ranks and terms of tests/golden/webshop-search.json: what Lucene 9.9.1 itself finds for the file's documents and queries, with
 * the analyzer and the constants that pyserini gives WebShop.
 *
 *     java -cp LUCENE_JARS tests/golden/WebShopSearch.java documents.txt queries.txt > ranks.txt
 *
 * One document or query a line. A line of the output: the numbers of the best 50 documents, a tab, the query's terms.
 */
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.store.ByteBuffersDirectory;

public class WebShopSearch {
  public static void main(String[] args) throws Exception {
    Analyzer analyzer = new EnglishAnalyzer();
    BM25Similarity bm25 = new BM25Similarity(0.9f, 0.4f);
    ByteBuffersDirectory folder = new ByteBuffersDirectory();
    IndexWriter writer = new IndexWriter(folder, new IndexWriterConfig(analyzer).setSimilarity(bm25));
    for (String line : Files.readAllLines(Path.of(args[0]))) {
      Document document = new Document();
      document.add(new TextField("contents", line, Field.Store.NO));
      writer.addDocument(document);
    }
    writer.forceMerge(1);
    writer.close();
    IndexSearcher searcher = new IndexSearcher(DirectoryReader.open(folder));
    searcher.setSimilarity(bm25);
    for (String query : Files.readAllLines(Path.of(args[1]))) {
      Map<String, Integer> terms = new LinkedHashMap<>();
      TokenStream stream = analyzer.tokenStream("contents", query);
      CharTermAttribute term = stream.addAttribute(CharTermAttribute.class);
      stream.reset();
      while (stream.incrementToken()) terms.merge(term.toString(), 1, Integer::sum);
      stream.end();
      stream.close();
      BooleanQuery.Builder any = new BooleanQuery.Builder();
      for (Map.Entry<String, Integer> entry : terms.entrySet()) {
        TermQuery one = new TermQuery(new Term("contents", entry.getKey()));
        any.add(new BoostQuery(one, entry.getValue()), BooleanClause.Occur.SHOULD);
      }
      List<String> found = new ArrayList<>();
      for (ScoreDoc hit : searcher.search(any.build(), 50).scoreDocs) found.add("" + hit.doc);
      System.out.println(String.join(" ", found) + "\t" + String.join(" ", terms.keySet()));
    }
  }
}
