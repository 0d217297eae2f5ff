/** Entry of a sampler's compute thread. */
import { policyMethods } from "../policy-thread.ts";
import { serveMethods } from "../threads.ts";

serveMethods(policyMethods());
