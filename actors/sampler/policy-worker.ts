/** Entry of the thread that computes a policy: a sampler's, or a saved one's (actors/policy/saved-policy.ts). */

import { serveMethods } from "../process/worker-rpc.ts";
import { policyMethods } from "./policy.ts";

serveMethods(policyMethods());
