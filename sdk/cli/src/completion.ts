import type { Command } from "commander";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

/** What may follow a command: its path as in "runmesh run", with the commands below it and its options. */
interface Place {
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly { readonly long: string; readonly description: string }[];
}

/** A script for the shell that completes commands and options, made of the commands that there are. */
export function writeCompletion(program: Command, shell: Shell): string[] {
  const places = listPlaces(program);
  const write = { bash: writeBash, zsh: writeZsh, fish: writeFish };
  return write[shell](places);
}

function listPlaces(command: Command, parents: readonly Command[] = []): Place[] {
  const line = [...parents, command];
  const path = line.map((one) => one.name()).join(" ");
  // Which runmesh it is can be asked before any command only.
  const isTaken = (long: string | undefined) => long !== undefined && (parents.length === 0 || long !== "--version");
  const options = line.flatMap((one) => one.options).filter((option) => isTaken(option.long));
  const place = {
    path,
    commands: command.commands.map((one) => ({ name: one.name(), description: one.description() })),
    options: [
      ...options.map((option) => ({ long: option.long!, description: option.description })),
      { long: "--help", description: "what it takes" },
    ],
  };
  return [place, ...command.commands.flatMap((one) => listPlaces(one, line))];
}

const wordsOf = ({ commands, options }: Place): string =>
  [...commands.map((command) => command.name), ...options.map((option) => option.long)].join(" ");

const below = (places: readonly Place[]): string =>
  places
    .slice(1)
    .map((place) => `"${place.path}"`)
    .join("|");

function writeBash(places: readonly Place[]): string[] {
  return [
    "_runmesh() {",
    '  local at="runmesh" word words=""',
    `  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do`,
    `    case "$at $word" in ${below(places)}) at="$at $word" ;; esac`,
    "  done",
    '  case "$at" in',
    ...places.map((place) => `    "${place.path}") words="${wordsOf(place)}" ;;`),
    "  esac",
    `  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))`,
    "}",
    "complete -o default -F _runmesh runmesh",
  ];
}

/** Where no further command can follow, a word may be a file. */
const takesFiles = (place: Place): boolean => place.commands.length === 0;
const FILES = '; [[ "$PREFIX" == -* ]] || _files';

function writeZsh(places: readonly Place[]): string[] {
  return [
    "#compdef runmesh",
    "_runmesh() {",
    '  local at="runmesh" word',
    `  for word in "\${words[@]:1:$((CURRENT - 2))}"; do`,
    `    case "$at $word" in ${below(places)}) at="$at $word" ;; esac`,
    "  done",
    '  case "$at" in',
    ...places.map((place) => `    "${place.path}") compadd -- ${wordsOf(place)}${takesFiles(place) ? FILES : ""} ;;`),
    "  esac",
    "}",
    "compdef _runmesh runmesh",
  ];
}

function writeFish(places: readonly Place[]): string[] {
  const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  return [
    "function __runmesh_at",
    "  set -l at runmesh",
    "  for word in (commandline -opc)[2..-1]",
    '    switch "$at $word"',
    `      case ${places
      .slice(1)
      .map((place) => quote(place.path))
      .join(" ")}`,
    '        set at "$at $word"',
    "    end",
    "  end",
    "  echo $at",
    "end",
    ...places.flatMap((place) => {
      const { path, commands, options } = place;
      const here = `complete -c runmesh -n ${quote(`test (__runmesh_at) = "${path}"`)}`;
      return [
        ...(takesFiles(place) ? [] : [`${here} -f`]),
        ...commands.map(({ name, description }) => `${here} -a ${name} -d ${quote(description)}`),
        ...options.map(({ long, description }) => `${here} -l ${long.slice(2)} -d ${quote(description)}`),
      ];
    }),
  ];
}
