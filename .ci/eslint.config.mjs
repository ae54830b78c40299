// ESLint's rules for the scripts of the page, which are ES modules.
import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["page/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "no-multi-assign": ["error", { ignoreNonDeclaration: true }],
      "no-nested-ternary": "error",
      "no-return-assign": ["error", "always"],
      "no-sequences": "error",
      "no-shadow": "error",
      "no-unused-expressions": "error",
      "no-unused-vars": ["error", { varsIgnorePattern: "^_$", argsIgnorePattern: "^_$" }],
      "no-var": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
    },
  },
  {
    files: ["page/{workers,compute}/*.js"],
    languageOptions: { globals: { ...globals.worker, WebAssembly: "readonly" } },
  },
];
