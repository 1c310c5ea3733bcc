// A stand-in for model servers, on loopback: it plays scripted turns to a coding agent.
//
// It speaks the Anthropic Messages API, the OpenAI Responses API and Gemini's generateContent,
// with and without streaming. A script holds conversations by name:
//
//   {"one": [{"tools": [{"name": "Bash", "input": {"command": "ls"}}]}, {"text": "done"}]}
//
// The last word "play:NAME" in the text a request's user wrote chooses the conversation: the
// prompt "play:one" plays "one", and a sub-agent that is given "play:child" plays "child".
// Each request that offers tools takes the next turn; when the turns are used up the answer is
// "ok". A turn is one of
//   {"text": "…", "slow_ms": 5000}       text, streamed over that time
//   {"tools": [{"name", "input"}]}       tool calls ("custom": true for a free-form tool of Codex)
//   {"error": 500, "type": "api_error"}  an HTTP error; "times": 9 repeats it
// Requests without tools (titles, token counts, probes) get a short text and take no turn.
// Every request is written to LOGDIR/requests, so that a test can read what the model was told.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

const nap = (ms) => new Promise((done) => setTimeout(done, ms));
let count = 0;
const id = (prefix) => `${prefix}_${Date.now().toString(36)}${(count++).toString(36).padStart(4, '0')}`;

/** Starts the server; resolves to {port, close, requests}. */
export function startStandIn({ conversations, log }) {
  const left = new Map(Object.entries(conversations).map(([k, v]) => [k, v.map((t) => ({ ...t }))]));
  const folder = path.join(log, 'requests');
  fs.mkdirSync(folder, { recursive: true });
  let serial = 0;

  function nextTurn(texts) {
    let name;
    for (const text of texts) for (const m of text.matchAll(/\bplay:([a-z][a-z0-9-]*)/g)) if (left.has(m[1])) name = m[1];
    const turns = left.get(name);
    const turn = turns?.[0] ?? { text: 'ok' };
    if (turn.times > 1) turn.times -= 1;
    else turns?.shift();
    return { name, turn };
  }

  const server = http.createServer(async (req, res) => {
    let body = '';
    for await (const chunk of req) body += chunk;
    const at = Date.now();
    let json = {};
    try {
      json = body ? JSON.parse(body) : {};
    } catch {
      json = { unread: body.slice(0, 2000) };
    }
    const n = String(++serial).padStart(3, '0');
    const note = { at, method: req.method, url: req.url, headers: req.headers, body: json };
    const save = () => fs.writeFileSync(path.join(folder, `${n}.json`), JSON.stringify(note, null, 1));
    const api = apiOf(req.url);
    res.on('close', () => {
      note.closed = { at: Date.now(), complete: res.writableFinished };
      save();
    });
    if (!api || req.method !== 'POST') {
      save();
      return send(res, api || req.method === 'HEAD' || req.method === 'GET' ? 200 : 404, { data: [], models: [] });
    }
    if (/count_?tokens/i.test(req.url)) {
      save();
      return send(res, 200, { input_tokens: 100, totalTokens: 100 });
    }
    const main = api.isMain(json);
    const { name, turn } = main ? nextTurn(api.userTexts(json)) : { name: 'side', turn: { text: api.side(json) } };
    Object.assign(note, { conversation: name, turn });
    save();
    try {
      if (turn.wait_ms) await nap(turn.wait_ms);
      if (turn.error) return send(res, turn.error, api.error(turn));
      await api.answer(res, json, turn, req.url);
    } catch (error) {
      note.failure = String(error);
      save();
      res.destroy();
    }
  });
  return new Promise((done) => {
    server.listen(0, '127.0.0.1', () => {
      done({ port: server.address().port, close: () => (server.closeAllConnections(), server.close()) });
    });
  });
}

function send(res, status, json) {
  res.writeHead(status, { 'content-type': 'application/json' });
  res.end(JSON.stringify(json));
}

function apiOf(url) {
  if (/\/v1\/messages/.test(url)) return anthropic;
  if (/\/responses(\?|$)/.test(url)) return openai;
  if (/:(stream)?generateContent|:countTokens/i.test(url)) return gemini;
  return undefined;
}

/** The text in pieces, with the pause after each that makes the whole last `slow_ms`. */
function* pieces(turn) {
  const text = turn.text ?? '';
  if (!turn.slow_ms) {
    yield [text, 0];
    return;
  }
  const steps = Math.max(1, Math.round(turn.slow_ms / 200));
  for (let i = 0; i < steps; i++) yield [i === 0 ? `${text} ` : `word${i} `, 200];
}

const textOf = (content) =>
  typeof content === 'string' ? [content] : (content ?? []).flatMap((part) => (typeof part.text === 'string' ? [part.text] : []));

const anthropic = {
  isMain: (body) => (body.tools ?? []).some((t) => t.name === 'Bash' || t.name === 'Read'),
  userTexts: (body) => (body.messages ?? []).filter((m) => m.role === 'user').flatMap((m) => textOf(m.content)),
  side: (body) => (JSON.stringify(body).includes('title') ? '{"title": "Side title"}' : 'ok'),
  error: (turn) => ({ type: 'error', error: { type: turn.type ?? 'api_error', message: `stand-in ${turn.error}` } }),
  async answer(res, body, turn) {
    const blocks = [];
    if (turn.text !== undefined) blocks.push({ type: 'text', text: turn.text });
    for (const t of turn.tools ?? []) blocks.push({ type: 'tool_use', id: id('toolu'), name: t.name, input: t.input });
    const message = {
      id: id('msg'), type: 'message', role: 'assistant', model: body.model, content: blocks,
      stop_reason: turn.tools ? 'tool_use' : 'end_turn', stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 10, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
    };
    if (!body.stream) return send(res, 200, message);
    res.writeHead(200, { 'content-type': 'text/event-stream', 'request-id': id('req') });
    const event = (type, data) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
    event('message_start', { message: { ...message, content: [], stop_reason: null } });
    for (const [index, block] of blocks.entries()) {
      if (block.type === 'text') {
        event('content_block_start', { index, content_block: { type: 'text', text: '' } });
        for (const [text, ms] of pieces(turn)) {
          event('content_block_delta', { index, delta: { type: 'text_delta', text } });
          if (ms) await nap(ms);
        }
      } else {
        event('content_block_start', { index, content_block: { ...block, input: {} } });
        event('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: JSON.stringify(block.input) } });
      }
      event('content_block_stop', { index });
    }
    event('message_delta', { delta: { stop_reason: message.stop_reason, stop_sequence: null }, usage: { output_tokens: 10 } });
    event('message_stop', {});
    res.end();
  },
};

const openai = {
  // A title is asked for with the same tools, but wants JSON. Newer models get their tools as input.
  isMain: (body) =>
    body.text?.format?.type !== 'json_schema' &&
    ((body.tools ?? []).length > 0 || (Array.isArray(body.input) && body.input.some((item) => item.type === 'additional_tools'))),
  userTexts: (body) =>
    (Array.isArray(body.input) ? body.input : []).flatMap((item) =>
      item.role === 'user' || item.type === 'agent_message' ? textOf(item.content) : []),
  side: () => '{"title": "Side title"}',
  error: (turn) => ({ error: { type: turn.type ?? 'server_error', code: turn.type ?? null, message: `stand-in ${turn.error}` } }),
  async answer(res, body, turn) {
    const output = [];
    if (turn.text !== undefined) {
      output.push({ type: 'message', id: id('msg'), role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: turn.text, annotations: [] }] });
    }
    for (const t of turn.tools ?? []) {
      const call = { id: id('fc'), call_id: id('call'), name: t.name, status: 'completed' };
      if (t.namespace) call.namespace = t.namespace;
      output.push(t.custom ? { type: 'custom_tool_call', ...call, input: t.input } : { type: 'function_call', ...call, arguments: JSON.stringify(t.input) });
    }
    const response = { id: id('resp'), object: 'response', model: body.model, status: 'in_progress', output: [] };
    const usage = { input_tokens: 10, input_tokens_details: { cached_tokens: 0 }, output_tokens: 10, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 20 };
    const whole = { ...response, status: 'completed', output, usage };
    if (!body.stream) return send(res, 200, whole);
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    let sequence_number = 0;
    const event = (type, data) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequence_number++, ...data })}\n\n`);
    event('response.created', { response });
    for (const [output_index, item] of output.entries()) {
      event('response.output_item.added', { output_index, item: item.type === 'message' ? { ...item, status: 'in_progress', content: [] } : item });
      if (item.type === 'message') {
        for (const [delta, ms] of pieces(turn)) {
          event('response.output_text.delta', { item_id: item.id, output_index, content_index: 0, delta });
          if (ms) await nap(ms);
        }
      }
      event('response.output_item.done', { output_index, item });
    }
    event('response.completed', { response: whole });
    res.end();
  },
};

const gemini = {
  isMain: (body) => (body.tools ?? []).some((t) => (t.functionDeclarations ?? []).length > 0),
  userTexts: (body) => (body.contents ?? []).filter((c) => c.role === 'user').flatMap((c) => textOf(c.parts)),
  side: (body) =>
    JSON.stringify(body.generationConfig?.responseJsonSchema ?? body.generationConfig?.responseSchema ?? '').includes('model_choice')
      ? '{"reasoning": "plain", "model_choice": "flash", "complexity_reasoning": "plain", "complexity_score": 10}'
      : '{"reasoning": "done", "next_speaker": "user"}',
  error: (turn) => ({ error: { code: turn.error, status: turn.type ?? 'INTERNAL', message: `stand-in ${turn.error}` } }),
  async answer(res, body, turn, url) {
    const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 10, totalTokenCount: 20 };
    const chunk = (parts, finishReason) => ({ candidates: [{ index: 0, content: { role: 'model', parts }, ...(finishReason && { finishReason }) }], usageMetadata, modelVersion: 'stand-in', responseId: id('r') });
    const calls = (turn.tools ?? []).map((t) => ({ functionCall: { name: t.name, args: t.input } }));
    if (!/stream/i.test(url)) return send(res, 200, chunk([...(turn.text !== undefined ? [{ text: turn.text }] : []), ...calls], 'STOP'));
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const event = (data) => res.write(`data: ${JSON.stringify(data)}\r\n\r\n`);
    if (turn.text !== undefined) {
      for (const [text, ms] of pieces(turn)) {
        event(chunk([{ text }]));
        if (ms) await nap(ms);
      }
    }
    event(chunk(calls.length ? calls : [{ text: '' }], 'STOP'));
    res.end();
  },
};
