// The bridge between DeepSeek Harness and the rlm-memory host: a plugin module without dependencies.
//
// Owns: the memory tools under their own names, forwarded to the host; recalled memory on the first step of a root's turn;
// committed records of root sessions, told to the host. Does not own: any rule of memory (the host decides what is captured
// and what is injected), starting the host's service for good.
//
// Whatever fails here fails open: a turn never waits for memory longer than RECALL_MS, and never ends because of it. The
// token goes to 127.0.0.1 alone, and only where the process that wrote the address still runs.
//
// Source: design page "DeepSeek Harness and MCP", Ways in.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { join } from 'node:path';

export const name = 'rlm-memory';
export const inject = ['tools', 'agents', 'sessions'];

const RECALL_MS = 800;
const TICK_MS = 50;
const LIST_MS = 1500;
const EVENTS_MS = 5000;
const CALL_MS = 660000; // The host's own limit is shorter; this one is for a host that fell silent.
const RETRY_MS = 3000;
const START_MS = 30000; // A host that was started is not started again within that time.
const MAX_ANSWER_BYTES = 4 << 20;
const MAX_TURN_RECORDS = 256;
const MAX_TURN_BYTES = 512 << 10;
const MAX_WAITING_TURNS = 32;
const MAX_TEXT = 64000;
const UNDERSTOOD = [0, 4];

class BridgeError extends Error {
  constructor(code, message) {
    super(message.startsWith(code) ? message : `${code}: ${message}`);
    this.name = 'BridgeError';
    this.code = code;
  }
}

// -- the host ---------------------------------------------------------------------------------------------------------

/** Asks the host that `config.stateRoot` names. */
class Host {
  constructor(config) {
    this.root = config.stateRoot;
    this.command = Array.isArray(config.command) ? config.command : [];
    this.startedAt = 0;
  }

  /** Where the host listens and the token; throws NO_HOST. */
  place() {
    try {
      const { url, pid } = JSON.parse(readFileSync(join(this.root, 'run', 'loopback.json'), 'utf8'));
      const token = readFileSync(join(this.root, 'run', 'loopback.token'), 'utf8').trim();
      process.kill(pid, 0);
      const { hostname, port } = new URL(url);
      if (hostname !== '127.0.0.1') throw new Error('not the loopback');
      return { port, token };
    } catch {
      throw new BridgeError('NO_HOST', 'no rlm-memory host serves here; start one with `rlm-memory host run`');
    }
  }

  /** The answer of one request as an object. Throws BridgeError; never waits longer than `ms`. */
  ask(path, body, ms, signal) {
    return new Promise((resolve, reject) => {
      const { port, token } = this.place();
      const data = Buffer.from(JSON.stringify(body), 'utf8');
      const sent = request({
        host: '127.0.0.1', port, path, method: 'POST', agent: false,
        headers: {
          authorization: `Bearer ${token}`, 'content-type': 'application/json', 'content-length': data.length,
          connection: 'close',
        },
      });
      const late = countdown(ms, () => sent.destroy(new BridgeError('HOST_LOST', `no answer within ${ms} ms`)));
      const aborted = () => sent.destroy(new BridgeError('ABORTED', 'the call was aborted'));
      const done = (settle) => (value) => {
        clearInterval(late);
        signal?.removeEventListener('abort', aborted);
        settle(value);
      };
      const [fulfil, fail] = [done(resolve), done(reject)];
      sent.on('error', (error) => fail(error instanceof BridgeError ? error : lost(error)));
      sent.on('response', (response) => read(response, fulfil, fail));
      if (signal?.aborted) return aborted();
      signal?.addEventListener('abort', aborted, { once: true });
      sent.end(data);
    });
  }

  /** Start the host that the install named, in the background; not again for a while. */
  start() {
    const now = Date.now();
    if (this.command.length === 0 || now - this.startedAt < START_MS) return;
    this.startedAt = now;
    try {
      const [program, ...options] = this.command;
      const child = spawn(program, options, { detached: true, stdio: 'ignore', cwd: this.root });
      child.on('error', () => {});
      child.unref();
    } catch { /* The next try is told by `startedAt`. */ }
  }
}

/** Calls `run` once after `ms` in which this process could work: a moment that it was busy counts as one tick, since it could not
 *  have read an answer then. */
function countdown(ms, run) {
  let left = ms;
  const timer = setInterval(() => {
    left -= TICK_MS;
    if (left > 0) return;
    clearInterval(timer);
    run();
  }, TICK_MS);
  return timer;
}

const lost = (error) => error.code === 'ECONNREFUSED'
  ? new BridgeError('NO_HOST', 'no rlm-memory host serves here; start one with `rlm-memory host run`')
  : new BridgeError('HOST_LOST', 'the host ended while the call waited; whether it took effect is not known');

function read(response, fulfil, fail) {
  const parts = [];
  let size = 0;
  response.on('data', (part) => {
    parts.push(part);
    size += part.length;
    if (size > MAX_ANSWER_BYTES) response.destroy(new BridgeError('PAYLOAD_TOO_LARGE', 'the answer is too large'));
  });
  response.on('error', (error) => fail(error instanceof BridgeError ? error : lost(error)));
  response.on('aborted', () => fail(lost({})));
  response.on('end', () => {
    try {
      const value = JSON.parse(Buffer.concat(parts).toString('utf8'));
      if (response.statusCode === 200) return fulfil(value);
      fail(new BridgeError(value.error?.code ?? 'HOST_REQUEST_FAILED', value.error?.message ?? 'the host refused'));
    } catch {
      fail(new BridgeError('HOST_REQUEST_FAILED', `the host answered ${response.statusCode} without a reason`));
    }
  });
}

// -- sessions ---------------------------------------------------------------------------------------------------------

/** What the host is told of a header. */
function headerOf(session) {
  const { id, version, cwd, origin, delegationDepth, agentPreset } = session.header;
  const told = { id: String(id), version };
  if (cwd !== undefined) told.cwd = String(cwd);
  if (origin !== undefined) told.origin = String(origin);
  if (delegationDepth !== undefined) told.delegationDepth = delegationDepth;
  if (agentPreset !== undefined) told.agentPreset = String(agentPreset);
  return told;
}

const isRoot = ({ version, origin, delegationDepth }) =>
  UNDERSTOOD.includes(version) && origin === undefined && (delegationDepth ?? 0) === 0;

const textOf = (blocks) => (Array.isArray(blocks) ? blocks : [])
  .filter((block) => block?.type === 'text' && typeof block.text === 'string')
  .map((block) => block.text)
  .join('\n');

/** A message of ours, in the form that the header's version asks for; the other form spoils a session for good. */
function contextMessage(version, text) {
  const source = version === 0 ? { kind: 'plugin', plugin: name } : { kind: name };
  return Object.freeze({ id: randomUUID(), role: 'user', content: [{ type: 'text', text }], source });
}

// -- capture ----------------------------------------------------------------------------------------------------------

/** Text blocks as they are; of all others only what they are. */
const slimBlocks = (blocks) => (Array.isArray(blocks) ? blocks : []).map((block) =>
  block?.type === 'text' ? { type: 'text', text: block.text } : { type: String(block?.type) });

/** What the host needs of a committed record; undefined for what it needs nothing of. */
function slim({ type, seq, time, surfaceOp, data }) {
  const told = { type, seq, time, ...(typeof surfaceOp === 'string' ? { surfaceOp } : {}) };
  if (type === 'turn/start' || type === 'turn/end') {
    return { ...told, data: { turn: data.turn, ...(data.reason ? { reason: { kind: data.reason.kind } } : {}) } };
  }
  if (type === 'user/message') {
    // Whatever a plugin put there stays here; that it was there is all that counts.
    const { kind } = data.source ?? {};
    const content = kind === 'user' ? slimBlocks(data.content) : [];
    return { ...told, data: { role: data.role, source: { kind }, content } };
  }
  if (type === 'assistant/message') {
    return { ...told, data: { turn: data.turn, interrupted: data.interrupted === true, message: { content: slimBlocks(data.message?.content) } } };
  }
  return type === 'compaction/summary' ? { ...told, data: {} } : undefined;
}

/**
 * One root session's records. A turn is told once at its user's message, so that the host can check quotes, and once
 * complete at its end; the host ignores what it has. Turns that could not be told wait for the host, within bounds.
 */
class Feed {
  constructor(host, header) {
    this.host = host;
    this.header = header;
    this.turn = [];
    this.bytes = 0;
    this.isWhole = true;
    this.waiting = [];
    this.telling = undefined;
  }

  take(event) {
    const record = slim(event);
    if (record === undefined) return;
    if (record.type === 'turn/start') this.begin();
    this.bytes += JSON.stringify(record).length;
    if (this.turn.length >= MAX_TURN_RECORDS || this.bytes > MAX_TURN_BYTES) this.isWhole = false;
    if (this.isWhole) this.turn.push(record);
    if (record.type === 'turn/end') {
      this.queue(this.isWhole ? this.turn : [record]);
      this.begin();
    } else if (record.type === 'user/message' && record.data.source.kind === 'user' && this.isWhole) {
      this.queue([...this.turn], true);
    }
  }

  begin() {
    this.turn = [];
    this.bytes = 0;
    this.isWhole = true;
  }

  /** What is `early` is told again at the turn's end, so it is told now or not at all. */
  queue(records, early = false) {
    this.waiting.push({ records, early });
    while (this.waiting.length > MAX_WAITING_TURNS) this.waiting.shift();
    this.telling ??= this.tell().finally(() => { this.telling = undefined; });
  }

  async tell() {
    while (this.waiting.length > 0) {
      const { records, early } = this.waiting[0];
      try {
        await this.host.ask('/v1/events', { header: this.header, events: records }, EVENTS_MS);
        this.waiting.shift();
      } catch (error) {
        const isAway = ['NO_HOST', 'HOST_LOST', 'RATE_LIMITED', 'REQUEST_SCOPE_CLOSED'].includes(error.code);
        if (early || !isAway) this.waiting.shift();
        else return;
      }
    }
  }
}

// -- the plugin -------------------------------------------------------------------------------------------------------

export async function apply(ctx, config = {}) {
  if (typeof config.stateRoot !== 'string') throw new Error('rlm-memory: the row has no config.stateRoot');
  const host = new Host(config);
  const feeds = new Map();
  let isOver = false;
  let timer;
  ctx.effect(() => () => {
    isOver = true;
    clearTimeout(timer);
    feeds.clear();
  }, 'rlm-memory: stop');

  if (config.tools !== false) {
    const registered = new Set();
    const register = async () => {
      if (isOver) return;
      try {
        const { tools } = await host.ask('/v1/tools/list', {}, LIST_MS);
        for (const tool of tools) {
          if (isOver || registered.has(tool.name)) continue;
          registered.add(tool.name);
          ctx.tools.register(toolOf(host, tool));
        }
      } catch (error) {
        if (error.code === 'NO_HOST') host.start();
        timer = setTimeout(register, RETRY_MS);
        timer.unref?.();
      }
    };
    await register();
  }

  if (config.recall !== false) {
    ctx.on('agent/pre-step', async (step, next) => {
      const text = recalled(host, step);
      const decision = await next();
      if (decision.kind !== 'enter' || decision.messages.length === 0 || step.signal.aborted) return decision;
      const found = await text;
      if (found === '' || step.signal.aborted) return decision;
      const message = contextMessage(step.agent.session.header.version, found);
      return { ...decision, messages: [message, ...decision.messages] };
    }, { prepend: true });
  }

  if (config.capture !== false) {
    ctx.on('session/event', (session, event) => {
      try {
        if (!isRoot(session.header)) return;
        let feed = feeds.get(session.id);
        if (feed === undefined) feeds.set(session.id, feed = new Feed(host, headerOf(session)));
        feed.take(event);
      } catch { /* A record that cannot be read is no reason to end a session. */ }
    });
  }
}

/** What the first step of a root's turn gets: "" where it is no such step, where nothing is found, or on any trouble. */
async function recalled(host, { agent, messages, turn, step, signal }) {
  try {
    if (step !== 1 || !isRoot(agent.session.header)) return '';
    const asked = messages.filter((message) => message.source?.kind === 'user').map((message) => textOf(message.content));
    const text = asked.filter((part) => part !== '').join('\n');
    if (text === '' || text.length > MAX_TEXT) return '';
    const body = { header: headerOf(agent.session), turn, text };
    const answer = await host.ask('/v1/recall', body, RECALL_MS, signal);
    return typeof answer.text === 'string' ? answer.text : '';
  } catch {
    return '';
  }
}

/** A tool of the host's as the harness registers it. The value is the host's own; its text stands beside it. */
function toolOf(host, { name: toolName, description, parameters }) {
  const texts = new WeakMap();
  return {
    name: toolName,
    description,
    parameters,
    output: {
      schema: {},
      render: (args, value) => [{ type: 'text', text: texts.get(args) ?? JSON.stringify(value) }],
    },
    async execute(args, exec) {
      if (exec.agent === undefined) throw new BridgeError('INVALID_SCOPE', 'this call belongs to no session');
      const body = {
        header: headerOf(exec.agent.session), call_id: String(exec.callId), name: toolName, arguments: args ?? {},
      };
      const envelope = await host.ask('/v1/tools/call', body, CALL_MS, exec.signal).catch((error) => {
        if (error.code === 'NO_HOST') host.start();
        throw error;
      });
      const text = textOf(envelope.content);
      if (envelope.isError) {
        const code = envelope.error?.info?.code ?? 'DENIED';
        throw new BridgeError(code, text || envelope.error?.message || 'the tool failed');
      }
      if (args !== null && typeof args === 'object') texts.set(exec.arguments ?? args, text);
      return envelope.value;
    },
  };
}
