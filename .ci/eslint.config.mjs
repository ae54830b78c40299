// ESLint's rules for the scripts of the pages, which are no modules: a page joins its files, and they share their names.
import { readFileSync } from "node:fs";
import js from "@eslint/js";
import globals from "globals";

const FOLDER = "experiments/";
const read = (file) => readFileSync(FOLDER + file, "utf-8");

// The scripts of the page, as its template lists them: those of the two workers and that of the document.
const lists = [...read("playground/playground.html").matchAll(/{{ source\((.*?)\)/gs)];
const [player, trainer, page] = lists.map(([, list]) => list.match(/[\w/]+\.js/g));

// Returns the names that a file declares for the others: Prettier writes their lines without indentation.
function declaredIn(file) {
  const found = read(file).matchAll(/^(?:const|let|class|(?:async )?function\*?) (\w+)/gm);
  return [...found].map(([, name]) => name);
}

// Returns the settings for each file of a script: what its other files declare is known, what they use is used.
function settingsOf(files, environment) {
  return files.map((file) => {
    const others = files.filter((other) => other !== file);
    const shared = others.flatMap(declaredIn).map((name) => [name, "readonly"]);
    const words = new Set(others.map(read).join("\n").match(/\w+/g));
    const used = declaredIn(file).filter((name) => words.has(name));
    const ignored = { varsIgnorePattern: `^(_|${used.join("|")})$`, argsIgnorePattern: "^_$" };
    return {
      files: [FOLDER + file],
      languageOptions: { sourceType: "script", globals: { ...environment, ...Object.fromEntries(shared) } },
      rules: { "no-unused-vars": ["error", ignored] },
    };
  });
}

export default [
  js.configs.recommended,
  {
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "no-multi-assign": ["error", { ignoreNonDeclaration: true }],
      "no-nested-ternary": "error",
      "no-return-assign": ["error", "always"],
      "no-sequences": "error",
      "no-shadow": "error",
      "no-unused-expressions": "error",
      "no-var": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
    },
  },
  ...settingsOf(player, globals.worker),
  ...settingsOf(trainer, { ...globals.worker, WebAssembly: "readonly" }),
  ...settingsOf(page, globals.browser),
];
