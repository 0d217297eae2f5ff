/** The Bandit tags. Source: RAGEN config/envs.yaml. */
import { formatReply } from "../demonstrator.ts";
import {
  type Demonstrator,
  defineTag,
  expectGame,
  type Parts,
  plainWording,
  TagError,
  type TagSource,
  uniformPlayer,
} from "../tag.ts";
import { armsIn, BanditConfig, BanditGame, banditScorer, isRiskyArm } from "./game.ts";

const banditDemonstrator: Demonstrator = {
  reply(game, _actionsLeft, skill, uniform) {
    const bandit = expectGame(game, BanditGame);
    const other = Math.floor(uniform() * 2);
    const pulled = uniform() < skill.babble ? other : bandit.high;
    const answered = uniform() < skill.noise ? Math.floor(uniform() * 2) : pulled;
    return formatReply(`pull ${bandit.actions[pulled]}`, [bandit.actions[answered]!]);
  },
};

function parts(config: BanditConfig): Parts {
  const { hiArmHiscore, hiArmLoscore, hiArmHiscoreProb: share, loArmScore } = config;
  const riskyPaysMore = share * hiArmHiscore + (1 - share) * hiArmLoscore > loArmScore;
  return {
    // The observation contains the instructions.
    wording: plainWording("", null, false),
    open: (seeds) => new BanditGame(config, seeds),
    // An observation after a pull names no arms. It is short already, so `brief` returns it whole.
    brief: (observation) => armsIn(observation).join(" ") || observation,
    random: uniformPlayer,
    optimal: (game) => expectGame(game, BanditGame).high,
    best: () => 1,
    demonstrator: banditDemonstrator,
    reasoning: banditScorer({
      paysMore: (name) => isRiskyArm(config, name) === riskyPaysMore,
      isRisky: (name) => isRiskyArm(config, name),
    }),
  };
}

/** @param split  the list from which each board of this tag draws its names in RAGEN-2; null if RAGEN-2 has no such tag */
function bandit(tag: string, defaults: Partial<BanditConfig>, split: BanditConfig["split"]): TagSource {
  const source = defineTag({
    tag,
    type: "bandit",
    schema: BanditConfig,
    defaults,
    // In RAGEN v1 all members of a group get the same payout; in RAGEN-2 each member has its own payout.
    compatDefaults: (version) => (version === "ragen-v1" ? { sharedStream: true } : { split }),
    actionsMax: 1,
    replyWordsHint: 100,
    parts,
  });
  return {
    tag,
    make(options, compat) {
      const made = source.make(options, compat);
      const names = made.config["split"];
      const given = Object(options) as Partial<BanditConfig>;
      const unused = (["loArmName", "hiArmName"] as const).find((name) => given[name] !== undefined);
      if (names === null || unused === undefined) return made;
      throw new TagError(
        `options of ${tag}: ${unused} has no effect, because split (${names}) names the arms; set split to null`,
      );
    },
  };
}

export const banditTags: readonly TagSource[] = [
  bandit("Bandit", {}, "train"),
  bandit("BanditTest", { loArmName: "trader", hiArmName: "librarian" }, "test"),
  // BanditRev swaps the arms of BanditTest, as in RAGEN's scripts. RAGEN's paper calls BanditRev's order the forward order.
  bandit("BanditRev", { loArmName: "librarian", hiArmName: "trader" }, null),
];
