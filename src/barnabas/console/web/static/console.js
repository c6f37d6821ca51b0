// What pages do beyond HTML: dialogs, forms that keep their input after an error, refreshing, the live view, copying.
// Every page works without this script, except for dialogs and the live view. Text from the server becomes text nodes.
"use strict";

const NOT_CONNECTED = "The console does not answer. Is it running?";
const LIVE_ROWS_MAX = 500;

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.open) document.getElementById(button.dataset.open).showModal();
  if ("close" in button.dataset) button.closest("dialog").close();
  if ("copy" in button.dataset) copy(button);
});

async function copy(button) {
  const text = button.closest(".record").querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// A form with data-inline is sent without leaving the page; an error is shown in the form, and success follows the link.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!("inline" in form.dataset)) return;
  event.preventDefault();
  const button = event.submitter;
  const fields = new URLSearchParams(new FormData(form, button));
  const result = form.querySelector(".result");
  const say = (text, good) => { result.textContent = text; result.classList.toggle("good", good); };
  if (button) button.disabled = true;
  say("", false);
  try {
    const response = await fetch(button?.getAttribute("formaction") || form.action, {
      method: "POST", body: fields, headers: { accept: "application/json" },
    });
    const answer = await response.json();
    if (!response.ok) say(answer.error, false);
    else if (button && "stay" in button.dataset) say(answer.message, answer.compatible !== false);
    else window.location.assign(answer.link);
  } catch {
    say(NOT_CONNECTED, false);
  } finally {
    if (button) button.disabled = false;
  }
});

// Elements with data-refresh are replaced by the same elements of the reloaded page, unless a person is using them.
const refreshing = document.querySelectorAll("[data-refresh][id]");
if (refreshing.length) {
  const seconds = Math.min(...Array.from(refreshing, (element) => Number(element.dataset.refresh)));
  setInterval(refresh, seconds * 1000);
}

async function refresh() {
  if (document.hidden || document.querySelector("dialog[open]")) return;
  try {
    const response = await fetch(window.location.href, { headers: { accept: "text/html" } });
    if (!response.ok || response.redirected) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const old of document.querySelectorAll("[data-refresh][id]")) {
      const fresh = page.getElementById(old.id);
      if (fresh && !old.contains(document.activeElement)) old.replaceWith(fresh);
    }
  } catch { /* the next refresh may succeed */ }
}

// The live view.
const live = document.querySelector("[data-live]");
if (live) {
  const state = document.getElementById("live-state");
  const pause = document.querySelector("[data-pause]");
  const body = live.tBodies[0];
  const source = new EventSource(live.dataset.live);
  let shown = 0;
  let paused = false;
  const say = (text) => { state.textContent = text; };
  source.addEventListener("open", () => say("Waiting for new records…"));
  source.addEventListener("record", (event) => {
    if (paused) return;
    body.prepend(row(JSON.parse(event.data)));
    while (body.rows.length > LIVE_ROWS_MAX) body.deleteRow(-1);
    shown += 1;
    say(`${shown} new records`);
  });
  source.addEventListener("skipped", (event) => say(`${shown} new records; ${JSON.parse(event.data).records} more were too many to show`));
  source.addEventListener("over", (event) => { source.close(); say(JSON.parse(event.data).reason); });
  source.addEventListener("error", () => { if (source.readyState !== EventSource.CLOSED) say(NOT_CONNECTED); });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Continue" : "Pause";
  });
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function row(record) {
  const made = element("tr", "", "new");
  const time = new Date(record.timestamp).toISOString().replace("T", " ").replace("Z", "");
  made.append(
    element("td", record.partition, "n"), element("td", record.offset, "n"), element("td", time, "mono time"),
    element("td", record.key === "null" ? "" : record.key, "mono key"),
  );
  const cell = element("td", "", "value");
  const details = element("details", "");
  const summary = element("summary", "");
  summary.append(element("span", record.summary, "mono"));
  const pre = element("pre", record.value);
  pre.tabIndex = 0;
  details.append(summary, pre);
  cell.append(details);
  made.append(cell);
  return made;
}
