/** Entry of the thread that computes a policy: the policy of a sampler, or a saved policy (actors/policy/saved-policy.ts). */
import { serveMethods } from "../process/worker-rpc.ts";
import { policyMethods } from "./policy.ts";

serveMethods(policyMethods());
