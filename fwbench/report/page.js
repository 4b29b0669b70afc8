"use strict";
document.documentElement.classList.add("js");

// Numbers by their exact value, text by the alphabet; what is absent comes last either way.
function key(cell) {
  if (!cell.hasAttribute("data-value")) return cell.textContent.trim();
  const exact = cell.getAttribute("data-value");
  return exact === "" ? null : Number(exact);
}

function compare(one, other) {
  return typeof one === "number" ? one - other : one.localeCompare(other, undefined, { numeric: true });
}

function sort(table, header) {
  const place = header.cellIndex;
  const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [key(row.cells[place]), row]);
  rows.sort(([one], [other]) => (one === null) - (other === null) || (one === null ? 0 : sign * compare(one, other)));
  body.append(...rows.map(([, row]) => row));
}

function filter(table, input, output) {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const cells = Array.from(row.cells, (cell) => cell.textContent.toLowerCase());
    row.hidden = !words.every((word) => cells.some((cell) => cell.includes(word)));
    shown += !row.hidden;
  }
  pin(table);
  output.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
}

// The columns that say what a row is about stay in sight as far as they leave room for the others.
function pin(table) {
  const room = table.parentElement.clientWidth / 2;
  const header = table.tHead.rows[0].cells;
  let left = 0;
  const places = [];
  for (let place = 0; place < Number(table.dataset.pinned) && left + header[place].offsetWidth <= room; place++) {
    places.push(left);
    left += header[place].offsetWidth;
  }
  for (const row of table.rows) {
    for (let place = 1; place < row.cells.length && place < Number(table.dataset.pinned); place++) {
      row.cells[place].classList.toggle("pinned", place < places.length);
      row.cells[place].style.left = place < places.length ? `${places[place]}px` : "";
    }
  }
}

function pinAll() {
  for (const table of document.querySelectorAll("details[open] table")) pin(table);
}

// A row that a link leads to is shown, even if its table was folded or filtered.
function reveal() {
  const row = document.getElementById(location.hash.slice(1));
  if (!row || row.tagName !== "TR") return;
  row.closest("details").open = true;
  row.hidden = false;
  row.scrollIntoView({ block: "center" });
}

addEventListener("hashchange", reveal);
addEventListener("load", reveal);
addEventListener("resize", pinAll);
document.addEventListener("toggle", pinAll, true);
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});

for (const table of document.querySelectorAll("table")) {
  for (const header of table.tHead.rows[0].cells) {
    header.querySelector("button").addEventListener("click", () => sort(table, header));
  }
  const section = table.closest("section");
  const input = section.querySelector("input");
  if (input) input.addEventListener("input", () => filter(table, input, section.querySelector("output")));
}
