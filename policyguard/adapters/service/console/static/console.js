"use strict"
// The console's page: it fetches parts of itself as HTML, and replaces what has changed. The token comes in the
// address's fragment, which browsers send to no server, and is kept for this tab alone.

const find = (id) => document.getElementById(id)
const token = readToken()
const lists = { questions: find("questions-list"), sessions: find("sessions-list") }
const slow = ["budgets", "constraints", "policy"]
const shown = new Map() // element with an id -> the HTML that it was made from
let sessionCount = 100
let slowDue = 0

function readToken() {
  const given = location.hash.slice(1)
  if (/^[\w-]{20,}$/.test(given)) {
    sessionStorage.setItem("token", given)
    history.replaceState(null, "", location.pathname)
  }
  return sessionStorage.getItem("token") || ""
}

async function ask(path, body) {
  const headers = { authorization: `Bearer ${token}` }
  const options = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) }
  const response = await fetch(path, { ...options, cache: "no-store" })
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}))
    throw new Error(problem.detail || `the service answered ${response.status}`)
  }
  return response
}

async function fragment(name, query = "") {
  const html = await (await ask(`/fragment/${name}${query}`)).text()
  const template = document.createElement("template")
  template.innerHTML = html // rendered by our own server, which escapes all that comes from calls
  return [...template.content.children]
}

// Put new elements in place of those with the same id; what has not changed stays, with focus and open details.
function patch(container, elements, { removes = true, atTop = false } = {}) {
  const wanted = new Set(elements.map((one) => one.id))
  if (removes) for (const old of [...container.children]) if (!wanted.has(old.id)) remove(old)
  let after = null
  for (const one of elements) {
    const html = one.outerHTML
    let here = [...container.children].find((child) => child.id === one.id)
    if (here === undefined) {
      if (after !== null) after.after(one)
      else if (atTop || removes) container.prepend(one)
      else container.append(one)
      here = one
    } else if (here.querySelector(":active")) {
      continue // a button is being pressed; the next change shows this one too
    } else if (shown.get(here) !== html) {
      keepInput(here, one)
      here.replaceWith(one)
      shown.delete(here)
      here = one
    }
    shown.set(here, html)
    after = removes || atTop ? here : null
  }
}

function remove(element) {
  const holdsFocus = element.contains(document.activeElement)
  const section = element.closest("section")
  shown.delete(element)
  element.remove()
  if (holdsFocus) section?.focus()
}

function keepInput(old, one) {
  for (const field of old.querySelectorAll("input, select")) {
    const twin = one.querySelector(`[name="${field.name}"]`)
    if (twin) twin.value = field.value
  }
  const title = (details) => details.querySelector("summary").textContent
  const open = [...old.querySelectorAll("details[open]")].map(title)
  for (const details of one.querySelectorAll("details")) details.open = open.includes(title(details))
  for (const part of [".why", ".preview"]) {
    const was = old.querySelector(part)
    if (was?.childElementCount) one.querySelector(part)?.replaceChildren(...was.children)
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null
  if (!focused) return
  const focusable = "a, button, input, select, summary, [tabindex]"
  const number = [...old.querySelectorAll(focusable)].indexOf(focused)
  queueMicrotask(() => [...one.querySelectorAll(focusable)][number]?.focus())
}

function say(text, isProblem = false) {
  const status = find("status")
  status.textContent = text
  status.classList.toggle("bad", isProblem)
}

let known = null // the calls that waited at the last look
async function showQuestions(before = "") {
  const elements = await fragment("questions")
  patch(lists.questions, elements)
  const calls = elements.filter((one) => one.dataset.call !== undefined)
  find("waiting").textContent = calls.length ? `(${calls.length})` : ""
  document.title = calls.length ? `(${calls.length}) policyguard` : "policyguard"
  const fresh = known === null ? [] : calls.filter((one) => !known.has(one.id))
  known = new Set(calls.map((one) => one.id))
  if (!fresh.length) return
  const tools = fresh.map((one) => one.dataset.tool).join(", ")
  const news = fresh.length === 1 ? `a call of ${tools} waits for you` : `${fresh.length} calls wait for you: ${tools}`
  say(before ? `${before}; ${news}` : news)
  if (window.Notification?.permission === "granted" && document.hidden) new Notification(`policyguard: ${tools} waits`)
}

async function showSessions(ids) {
  if (ids === undefined) {
    patch(lists.sessions, await fragment("sessions", `?count=${sessionCount}`))
    return
  }
  const query = ids.slice(0, 100).map((id) => `id=${encodeURIComponent(id)}`).join("&")
  if (query) patch(lists.sessions, await fragment("sessions", `?${query}`), { removes: false, atTop: true })
  for (const extra of [...lists.sessions.querySelectorAll(".session")].slice(sessionCount)) remove(extra)
}

const openSession = () => (location.hash.startsWith("#session=") ? decodeURIComponent(location.hash.slice(9)) : null)

async function showSession() {
  const id = openSession()
  const detail = find("session-detail")
  if (id === null) {
    find("session").hidden = true
    detail.replaceChildren()
    return
  }
  const isNew = detail.dataset.session !== id
  const elements = await fragment("session", `?id=${encodeURIComponent(id)}`)
  const keeps = !isNew && detail.childElementCount > 110 // earlier calls were asked for: only add
  patch(detail, keeps ? elements.filter((one) => one.id !== "session-earlier") : elements, { removes: !keeps })
  detail.dataset.session = id
  find("session").hidden = false
  if (isNew) find("session").focus()
}

async function showEarlier(button) {
  const id = openSession()
  const before = button.dataset.before
  const elements = await fragment("session", `?id=${encodeURIComponent(id)}&before=${before}`)
  const place = find("session-earlier")
  const calls = elements.filter((one) => one.classList.contains("call"))
  for (const one of calls) shown.set(one, one.outerHTML)
  place.after(...calls)
  place.replaceChildren(...elements.find((one) => one.id === "session-earlier").childNodes)
  ;(place.querySelector("button") || calls[0]).focus()
}

async function showSlow() {
  if (Date.now() < slowDue) return
  slowDue = Date.now() + 3000
  await Promise.all(slow.map(async (name) => patch(find(`${name}-list`), await fragment(name))))
}

async function preview(form) {
  const { session, call } = form.closest("article").dataset
  const query = new URLSearchParams({ session, call, remember: form.elements.remember.value })
  const place = form.querySelector(".preview")
  try {
    place.replaceChildren(...(await fragment("grant", `?${query}`)))
  } catch (error) {
    place.textContent = error.message
  }
}

async function answer(form, how) {
  const { session, call, tool } = form.closest("article").dataset
  const { message, remember, expires, scope } = Object.fromEntries(new FormData(form))
  const { answered, detail } = await (
    await ask("/answer", { session, call, how, message, remember, expires, scope })
  ).json()
  const done = how === "deny" ? "denied" : "approved"
  const outcome = answered ? `${tool} is ${done}` : `${tool} is not ${done}: ${detail}`
  say(outcome, !answered)
  await showQuestions(outcome)
}

const actions = {
  more: async () => {
    sessionCount += 100
    await showSessions()
  },
  earlier: showEarlier,
  "close-session": () => {
    location.hash = "#sessions"
  },
  revoke: async (button) => {
    if (!confirm(`Revoke ${button.dataset.id}? It is not learned again.`)) return
    await ask("/revoke", { id: button.dataset.id })
    say(`${button.dataset.id} is revoked`)
    slowDue = 0
    await showSlow()
  },
  why: async (button) => {
    const place = button.closest(".call").querySelector(".why")
    if (place.childElementCount) return place.replaceChildren()
    const query = new URLSearchParams({ session: button.dataset.session, call: button.dataset.call })
    place.replaceChildren(...(await fragment("why", `?${query}`)))
  },
}

const tell = (error) => say(error.message, true)

document.addEventListener("submit", (event) => {
  event.preventDefault()
  const form = event.target
  const how = event.submitter?.value
  if (form.dataset.do !== "answer" || !how) return
  if (form.dataset.busy) return // not `disabled`: a button that is would lose the focus
  form.dataset.busy = "yes"
  answer(form, how)
    .catch(tell)
    .finally(() => delete form.dataset.busy)
})
// Enter in the field denies: the word is for that.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.name !== "message") return
  event.preventDefault()
  event.target.form.requestSubmit(event.target.form.querySelector('[value="deny"]'))
})
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]")
  const act = button && actions[button.dataset.do]
  if (act) Promise.resolve(act(button)).catch(tell)
})
document.addEventListener("change", (event) => {
  if (event.target.name === "remember") preview(event.target.form)
})
document.addEventListener("toggle", (event) => {
  if (event.target.classList?.contains("grant") && event.target.open) preview(event.target.closest("form"))
}, true)
window.addEventListener("hashchange", () => showSession().catch(tell))

if (window.Notification && Notification.permission === "default") {
  const button = find("notify")
  button.hidden = false
  button.addEventListener("click", async () => {
    await Notification.requestPermission()
    button.hidden = true
  })
}

async function follow() {
  const who = await (await ask("/who")).json()
  const labels = who.labels.length ? ` (${who.labels.join(", ")})` : ""
  find("who").textContent = `Policy ${who.policy}. You answer as ${who.by}${labels}.`
  await Promise.all([showSessions(), showSession()])
  const response = await ask("/stream")
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  say("connected")
  for (let text = ""; ; ) {
    const { done, value } = await reader.read()
    if (done) throw new Error("the service has ended the connection")
    text += value
    const messages = text.split("\n\n")
    text = messages.pop()
    for (const message of messages) await update(JSON.parse(message.replace(/^data: /, "")))
  }
}

async function update({ sessions, questions }) {
  const parts = []
  if (questions) parts.push(showQuestions())
  if (sessions.length) parts.push(showSessions(sessions))
  if (sessions.includes(openSession())) parts.push(showSession())
  parts.push(showSlow())
  await Promise.all(parts)
}

async function stay() {
  for (;;) {
    try {
      await follow()
    } catch (error) {
      say(`${error.message}; if the service has ended, run \`policyguard console\` again`, true)
    }
    await new Promise((resolve) => setTimeout(resolve, 2000))
  }
}

stay()
