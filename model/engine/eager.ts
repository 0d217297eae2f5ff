/** The reference engine: each operation runs immediately on tfjs' plain JavaScript backend. Slow but simple. */
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import type { Engine } from "./engine.ts";
import { immediateEngine } from "./immediate.ts";

// Otherwise the backend prints advice to standard error.
tf.enableProdMode();

export const eagerEngine = (): Engine => immediateEngine("eager", "cpu, plain JavaScript", "cpu", true);
