import { createRegistry, type DescFile, type DescService, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import { ServerReflection, type ServerReflectionRequest } from "@runmesh/contracts/grpc/reflection/v1/reflection_pb";
import {
  ServerReflection as ServerReflectionAlpha,
  type ServerReflectionRequest as ServerReflectionRequestAlpha,
} from "@runmesh/contracts/grpc/reflection/v1alpha/reflection_pb";

/** A stream that asks for more than this is no tool's; it ends. */
const MAX_REQUESTS_PER_STREAM = 10_000;

/**
 * Serves grpc.reflection.v1 and v1alpha, so that `buf curl` and `grpcurl` work with no schema at hand. It knows the
 * services named, both versions of itself, and every file these need.
 */
export function reflectionRoutes(services: readonly DescService[]): (router: ConnectRouter) => void {
  const listed = [...services, ServerReflection, ServerReflectionAlpha];
  const answer = createAnswers(listed);

  async function* serve(requests: AsyncIterable<Question>) {
    const sent = new Set<string>();
    let count = 0;
    for await (const request of requests) {
      if (++count > MAX_REQUESTS_PER_STREAM) return;
      yield { validHost: request.host, originalRequest: request as never, messageResponse: answer(request, sent) };
    }
  }

  return (router) =>
    router
      .service(ServerReflection, { serverReflectionInfo: serve })
      .service(ServerReflectionAlpha, { serverReflectionInfo: serve });
}

/** Both versions ask alike. */
type Question = Pick<ServerReflectionRequest | ServerReflectionRequestAlpha, "host" | "messageRequest">;

function createAnswers(services: readonly DescService[]) {
  const files = new Map<string, DescFile>();
  for (const service of services) addFile(service.file);
  const registry = createRegistry(...files.values());

  function addFile(file: DescFile): void {
    if (files.has(file.proto.name)) return;
    files.set(file.proto.name, file);
    for (const dependency of file.dependencies) addFile(dependency);
  }

  /**
   * The file and then what it imports, each after all that import it, but for what this stream was sent before:
   * tools keep those.
   */
  function withImports(file: DescFile, sent: Set<string>): Uint8Array<ArrayBuffer>[] {
    const importsFirst: DescFile[] = [];
    const collect = (one: DescFile) => {
      sent.add(one.proto.name);
      for (const dependency of one.dependencies) if (!sent.has(dependency.proto.name)) collect(dependency);
      importsFirst.push(one);
    };
    collect(file);
    return importsFirst.reverse().map(({ proto }) => toBinary(FileDescriptorProtoSchema, proto));
  }

  function findSymbol(name: string): DescFile | undefined {
    const found = registry.get(name);
    if (found !== undefined) return found.file;
    // A method, field or value: the last word names a member of the type before it.
    const parent = registry.get(name.slice(0, Math.max(0, name.lastIndexOf("."))));
    const member = name.slice(name.lastIndexOf(".") + 1);
    if (parent?.kind === "service") return parent.methods.some((m) => m.name === member) ? parent.file : undefined;
    if (parent?.kind === "message") return parent.members.some((m) => m.name === member) ? parent.file : undefined;
    if (parent?.kind === "enum") return parent.values.some((v) => v.name === member) ? parent.file : undefined;
    return undefined;
  }

  const fileAnswer = (file: DescFile | undefined, sent: Set<string>, name: string) =>
    file === undefined
      ? notFound(name)
      : {
          case: "fileDescriptorResponse" as const,
          value: { fileDescriptorProto: withImports(file, sent) },
        };

  return ({ messageRequest: asked }: Question, sent: Set<string>) => {
    switch (asked.case) {
      case "fileByFilename":
        return fileAnswer(files.get(asked.value), sent, asked.value);
      case "fileContainingSymbol":
        return fileAnswer(findSymbol(asked.value), sent, asked.value);
      case "fileContainingExtension":
        return notFound(`${asked.value.containingType} extension ${asked.value.extensionNumber}`);
      case "allExtensionNumbersOfType":
        // The contracts use no extensions, so every message has an empty list of them.
        return registry.getMessage(asked.value) === undefined
          ? notFound(asked.value)
          : {
              case: "allExtensionNumbersResponse" as const,
              value: { baseTypeName: asked.value, extensionNumber: [] },
            };
      case "listServices":
        return {
          case: "listServicesResponse" as const,
          value: { service: services.map((service) => ({ name: service.typeName })) },
        };
      default:
        return errorAnswer(Code.InvalidArgument, "the request asks for nothing");
    }
  };
}

function notFound(name: string) {
  return errorAnswer(Code.NotFound, `${name} is not known here`);
}

function errorAnswer(errorCode: Code, errorMessage: string) {
  return { case: "errorResponse" as const, value: { errorCode, errorMessage } };
}
