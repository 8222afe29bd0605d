// The command line: what may be typed, and what it does.

export const COMMANDS = {
  help: { usage: "help", says: "this list" },
  goto: { usage: "goto X Y", says: "walk there: one evolving subscription", numbers: 2 },
  follow: { usage: "follow ENTITY", says: "walk after somebody (hover to see numbers)", numbers: 1 },
  stop: { usage: "stop", says: "stand still" },
  spawn: { usage: "spawn N", says: "N more characters", numbers: 1 },
  gather: { usage: "gather N", says: "the N closest characters follow you", numbers: 1 },
  scatter: { usage: "scatter", says: "they go their own ways again" },
  storm: { usage: "storm", says: "for a while everybody walks and nobody pauses" },
  find: { usage: "find ENTITY", says: "mark somebody in the world", numbers: 1 },
};

export function parse(text) {
  const [word, ...rest] = text.trim().split(/[\s,]+/);
  const command = Object.hasOwn(COMMANDS, word.toLowerCase()) && COMMANDS[word.toLowerCase()];
  if (!command) throw new Error(`there is no command ${word}; try help`);
  const numbers = rest.map(Number);
  if (numbers.length !== (command.numbers ?? 0) || !numbers.every(Number.isFinite)) {
    throw new Error(`it is ${command.usage}`);
  }
  return { word: word.toLowerCase(), numbers };
}

export class Console {
  #past = [];
  #at = 0;

  // `acts`: by a command's word, what it does with its numbers; its answer is shown.
  constructor(form, acts) {
    this.input = form.querySelector("input");
    this.log = form.querySelector("ol");
    this.acts = acts;
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

  say(text, kind = "") {
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
    this.say(`› ${text.trim()}`, "said");
    try {
      const { word, numbers } = parse(text);
      if (word === "help") {
        for (const { usage, says } of Object.values(COMMANDS)) this.say(`${usage.padEnd(15)}${says}`);
        return;
      }
      const answer = await this.acts[word](...numbers);
      if (answer) this.say(answer);
    } catch (error) {
      this.say(error.message, "wrong");
    }
  }

  // Up and down: what was typed before. Tab completes a word.
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
