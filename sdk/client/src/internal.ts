/** What @runmesh/worker shares with the client. No promise is made about it: import `@runmesh/client` instead. */
export { readCallError, readErrorDetail } from "./errors.ts";
export { createRegistration } from "./registration.ts";
export { validate } from "./schema.ts";
export { backoffMs, createServiceClient, isTransient } from "./service-client.ts";
export { startRequest } from "./start.ts";
export { bearer, createTransport, type MeshTransport, type TransportOptions } from "./transport.ts";
