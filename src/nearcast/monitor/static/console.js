// The command line: what may be typed, and what it does.

export const COMMANDS = {
  help: { usage: "help", does: "this list" },
  goto: { usage: "goto X Y", does: "walk there: one evolving subscription", numbers: 2 },
  follow: { usage: "follow ENTITY", does: "walk after an entity (hover to see its number)", numbers: 1 },
  stop: { usage: "stop", does: "stand still" },
  spawn: { usage: "spawn N", does: "N more characters", numbers: 1 },
  gather: { usage: "gather N", does: "the N closest characters follow you", numbers: 1 },
  scatter: { usage: "scatter", does: "the gathered characters stop following you" },
  storm: { usage: "storm", does: "for a while all characters walk without a pause" },
  find: { usage: "find ENTITY", does: "mark an entity in the world", numbers: 1 },
};

export function parse(text) {
  const [word, ...rest] = text.trim().split(/[\s,]+/);
  const command = Object.hasOwn(COMMANDS, word.toLowerCase()) && COMMANDS[word.toLowerCase()];
  if (!command) throw new Error(`there is no command ${word}; try help`);
  const numbers = rest.map(Number);
  if (numbers.length !== (command.numbers ?? 0) || !numbers.every(Number.isFinite)) {
    throw new Error(`usage: ${command.usage}`);
  }
  return { word: word.toLowerCase(), numbers };
}

export class Console {
  #past = [];
  #at = 0;

  // `actions`: a function for each command. It gets the numbers; what it returns is printed.
  constructor(form, actions) {
    this.input = form.querySelector("input");
    this.log = form.querySelector("ol");
    this.actions = actions;
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      this.#enter(this.input.value);
      this.input.value = "";
    });
    this.input.addEventListener("keydown", (e) => this.#recall(e));
    for (const button of form.querySelectorAll("button")) {
      button.addEventListener("click", () => this.#enter(button.textContent));
    }
  }

  print(text, kind = "") {
    const line = document.createElement("li");
    line.textContent = text;
    line.className = kind;
    this.log.append(line);
    while (this.log.children.length > 200) this.log.firstChild.remove();
    this.log.scrollTop = this.log.scrollHeight;
  }

  async #enter(text) {
    if (!text.trim()) return;
    if (this.#past.at(-1) !== text) this.#past.push(text);
    this.#at = this.#past.length;
    this.print(`› ${text.trim()}`, "typed");
    try {
      const { word, numbers } = parse(text);
      if (word === "help") {
        for (const { usage, does } of Object.values(COMMANDS)) this.print(`${usage.padEnd(15)}${does}`);
        return;
      }
      const answer = await this.actions[word](...numbers);
      if (answer) this.print(answer);
    } catch (error) {
      this.print(error.message, "wrong");
    }
  }

  // Up and down: earlier commands. Tab completes a command.
  #recall(e) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (step) {
      e.preventDefault();
      this.#at = Math.min(this.#past.length, Math.max(0, this.#at + step));
      this.input.value = this.#past[this.#at] ?? "";
    } else if (e.key === "Tab" && this.input.value.trim()) {
      const found = Object.keys(COMMANDS).filter((word) => word.startsWith(this.input.value));
      if (found.length === 1) {
        e.preventDefault();
        this.input.value = `${found[0]} `;
      }
    } else if (e.key === "Escape") {
      this.input.blur();
    }
  }
}
