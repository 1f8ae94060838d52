"use strict";
const table = document.querySelector("#all-values");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const words = document.querySelector("#words");
const section = document.querySelector("#section");
const only = document.querySelector("#only");
function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const keep = wanted.every(word => text.includes(word)) && (!section.value || row.dataset.section === section.value)
      && (!only.checked || row.dataset.within === "no");
    row.hidden = !keep;
    shown += keep;
  }
  document.querySelector("#count").textContent = shown + " of " + rows.length;
}
for (const control of [words, section, only]) control.addEventListener("input", filter);
filter();
for (const sortable of document.querySelectorAll("table.sortable")) {
  const heads = Array.from(sortable.tHead.rows[0].cells);
  heads.forEach((head, place) => head.querySelector("button").addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = row => row.cells[place].dataset.key ?? row.cells[place].textContent;
    const sorted = Array.from(sortable.tBodies[0].rows).sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return falling ? -order : order;
    });
    sortable.tBodies[0].append(...sorted);
  }));
}
