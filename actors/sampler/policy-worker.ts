/** Entry of a sampler's compute thread. */

import { serveMethods } from "../process/worker-rpc.ts";
import { policyMethods } from "./policy.ts";

serveMethods(policyMethods());
