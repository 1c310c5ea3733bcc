#!/usr/bin/env node
// Runs one real coding agent against the stand-in and records what it did.
//
//   play.mjs AGENT SCRIPT.json [--out DIR]
//
// AGENT is claude, codex or gemini; the program is looked for on PATH, or in PLAY_BIN (a folder).
// Everything lives in a private folder (DIR, or a new one under the temporary folder):
//   home/       the agent's HOME and configuration
//   work/       a git repository, the project
//   log/hooks/  one file per hook call; log/requests/ one per model request
//   log/screen-NAME.txt  pictures of the terminal
//
// The script, in which $WORK stands for the agent's folder and $ROOT for the run's:
//   {
//    "prompt": "play:one",         given on the command line (headless), or typed by a step
//    "args": ["-p"],            more arguments
//    "mode": "headless",        or "tmux"
//    "turns": {"one": [ … ]},   see stand_in.mjs
//    "replies": [ … ],          see record-hook
//    "files": {"a.txt": "x"},   the repository's first commit
//    "home": {"path": "text"},  more files in the home
//    "settings": {},            merged into the agent's project settings
//    "hooks": true,             false leaves the recording hooks out; "user" puts them in the home
//    "env": {},                 more environment
//    "setup": "shell command",  run in the project before the agent
//    "worktree": true,          run in a linked worktree work-2 of the project
//    "seconds": 60,             the run ends then
//    "steps": [ … ]             what the person does; see `steps` below
//   }
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { startStandIn } from './stand_in.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const nap = (ms) => new Promise((done) => setTimeout(done, ms));
const KEY = 'sk-ant-stand-in-0000000000000000000000';

const EVENTS = {
  claude: [
    'PreToolUse', 'PostToolUse', 'PostToolUseFailure', 'PostToolBatch', 'PermissionRequest', 'PermissionDenied',
    'Notification', 'UserPromptSubmit', 'UserPromptExpansion', 'SessionStart', 'SessionEnd', 'Setup', 'Stop',
    'StopFailure', 'SubagentStart', 'SubagentStop', 'PreCompact', 'PostCompact', 'PreModelSwitch', 'PostModelSwitch',
    'TeammateIdle', 'TaskCreated', 'TaskCompleted', 'Elicitation', 'ElicitationResult', 'ConfigChange',
    'InstructionsLoaded', 'WorktreeRemove', 'CwdChanged', 'FileChanged', 'DirectoryAdded',
  ],
  codex: [
    'PreToolUse', 'PermissionRequest', 'PostToolUse', 'PreCompact', 'PostCompact', 'SessionStart', 'SessionEnd',
    'UserPromptSubmit', 'SubagentStart', 'SubagentStop', 'Stop', 'Interrupt',
  ],
  gemini: [
    'BeforeTool', 'AfterTool', 'BeforeAgent', 'AfterAgent', 'Notification', 'SessionStart', 'SessionEnd', 'PreCompress',
    'BeforeModel', 'BeforeToolSelection',
  ],
};

function write(file, text) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
}
const json = (file, value) => write(file, `${JSON.stringify(value, null, 1)}\n`);

function hooks(agent, run, script) {
  const out = {};
  for (const event of script.events ?? EVENTS[agent]) {
    const hook = { type: 'command', command: `${path.join(here, 'record-hook')} ${run.log} ${event}` };
    if (script.timeout !== undefined) hook.timeout = script.timeout;
    out[event] = [{ hooks: [hook] }];
    // Some events are matched by tool or by source; a star takes all.
    if (/Tool|Permission/.test(event) && agent !== 'codex') out[event][0].matcher = agent === 'gemini' ? '.*' : '*';
    if (event === 'FileChanged') out[event][0].matcher = 'watched.txt';
  }
  return out;
}

/** Writes the agent's configuration; returns {command, args, env}. */
function prepare(agent, run, script, port) {
  const base = `http://127.0.0.1:${port}`;
  const env = {
    PATH: process.env.PATH, HOME: run.home, LANG: 'C.UTF-8', TERM: 'xterm-256color', SHELL: '/bin/bash', USER: os.userInfo().username,
  };
  const recorded = script.hooks === false ? {} : hooks(agent, run, script);
  const bin = (name) => (process.env.PLAY_BIN ? path.join(process.env.PLAY_BIN, name) : name);
  const headless = (script.mode ?? 'headless') === 'headless';
  if (agent === 'claude') {
    const config = path.join(run.home, '.claude');
    json(path.join(config, '.claude.json'), {
      hasCompletedOnboarding: true, theme: 'dark', numStartups: 5, autoUpdates: false,
      customApiKeyResponses: { approved: [KEY.slice(-20)], rejected: [] },
      projects: { [run.cwd]: { hasTrustDialogAccepted: script.trust ?? true, hasCompletedProjectOnboarding: true } },
      bypassPermissionsModeAccepted: true,
    });
    json(path.join(config, 'settings.json'), { ...(script.hooks === 'user' ? { hooks: recorded } : {}), skipDangerousModePermissionPrompt: true });
    json(path.join(run.cwd, '.claude/settings.json'), { ...(script.hooks === 'user' ? {} : { hooks: recorded }), ...script.settings });
    Object.assign(env, {
      CLAUDE_CONFIG_DIR: config, ANTHROPIC_BASE_URL: base, ANTHROPIC_API_KEY: KEY, IS_SANDBOX: '1',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1', DISABLE_TELEMETRY: '1', DISABLE_ERROR_REPORTING: '1',
    });
    const args = [...(script.args ?? []), ...(headless ? ['-p', script.prompt] : [])];
    return { command: bin('claude'), args, env };
  }
  if (agent === 'codex') {
    const config = path.join(run.home, '.codex');
    write(path.join(config, 'config.toml'), [
      'model = "gpt-5.5"', 'model_provider = "stand"', 'check_for_update_on_startup = false',
      '[model_providers.stand]', 'name = "stand"', `base_url = "${base}/v1"`, 'wire_api = "responses"', 'env_key = "STAND_KEY"',
      'request_max_retries = 1', 'stream_max_retries = 1', '[analytics]', 'enabled = false',
      ...((script.trust ?? true) ? [`[projects."${run.cwd}"]`, 'trust_level = "trusted"'] : []), ...(script.config ?? []), '',
    ].join('\n'));
    const file = script.hooks === 'user' ? path.join(config, 'hooks.json') : path.join(run.cwd, '.codex/hooks.json');
    if (script.hooks !== false) json(file, { hooks: recorded });
    Object.assign(env, { CODEX_HOME: config, STAND_KEY: 'stand-in' });
    const args = headless ? ['exec', ...(script.args ?? []), script.prompt] : [...(script.args ?? [])];
    return { command: bin('codex'), args, env };
  }
  json(path.join(run.home, '.gemini/settings.json'), {
    security: { auth: { selectedType: 'gemini-api-key' }, ...script.security }, general: { enableAutoUpdate: false, disableAutoUpdate: true },
    privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false }, ui: { hideTips: true }, ide: { hasSeenNudge: true },
    ...(script.hooks === 'user' ? { hooks: recorded } : {}),
  });
  json(path.join(run.cwd, '.gemini/settings.json'), { ...(script.hooks === 'user' ? {} : { hooks: recorded }), ...script.settings });
  if (script.trust ?? true) json(path.join(run.home, '.gemini/trustedFolders.json'), { [run.cwd]: 'TRUST_FOLDER' });
  Object.assign(env, { GEMINI_API_KEY: 'stand-in-key', GOOGLE_GEMINI_BASE_URL: base, GEMINI_CLI_NO_RELAUNCH: 'true' });
  const args = [...(script.args ?? []), ...(headless ? ['-p', script.prompt] : [])];
  return { command: bin('gemini'), args, env };
}

function newRun(out, script) {
  const root = fs.realpathSync(out ?? fs.mkdtempSync(path.join(os.tmpdir(), 'play-')));
  const run = { root, home: path.join(root, 'home'), work: path.join(root, 'work'), log: path.join(root, 'log') };
  for (const folder of [run.home, run.work, path.join(run.log, 'hooks')]) fs.mkdirSync(folder, { recursive: true });
  write(path.join(run.home, '.gitconfig'), '[user]\n\tname = Play\n\temail = play@example.org\n[init]\n\tdefaultBranch = main\n');
  for (const [name, text] of Object.entries(script.home ?? {})) write(path.join(run.home, name), text);
  const git = (...args) => execFileSync('git', args, { cwd: run.work, env: { PATH: process.env.PATH, HOME: run.home }, stdio: 'pipe' });
  git('init', '-q');
  for (const [name, text] of Object.entries({ 'a.txt': 'one\ntwo\n', ...script.files })) write(path.join(run.work, name), text);
  write(path.join(run.work, '.git/info/exclude'), '.claude\n.codex\n.gemini\n');
  git('add', '-A');
  git('commit', '-qm', 'Begin');
  run.cwd = run.work;
  if (script.worktree) {
    run.cwd = path.join(root, 'work-2');
    git('worktree', 'add', '-q', '-b', 'second', run.cwd);
  }
  json(path.join(run.log, 'replies.json'), script.replies ?? []);
  return run;
}

/** All hook records so far, oldest first. */
export function recorded(log) {
  const folder = path.join(log, 'hooks');
  return fs.readdirSync(folder).sort().flatMap((f) => {
    try {
      return [JSON.parse(fs.readFileSync(path.join(folder, f), 'utf8'))];
    } catch {
      return [];
    }
  });
}

async function until(seconds, test) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await nap(100)) if (test()) return true;
  return false;
}

/** The process that ran the last hook: the first ancestor that is no shell. */
export function agentProcess(log) {
  const last = recorded(log).findLast((r) => r.chain?.length);
  return last?.chain.find((p) => !/^(sh|bash|dash|zsh|env)$/.test(p.comm));
}

/** Ends what the run left behind: programs that the agent installed into the run's own home. */
function sweep(root) {
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (fs.readlinkSync(`/proc/${pid}/exe`).startsWith(`${root}/`)) process.kill(Number(pid), 'SIGKILL');
    } catch {
      // Ended by itself, or not ours to see.
    }
  }
}

class Terminal {
  constructor(run, command, args, env) {
    this.run = run;
    this.socket = path.join(run.root, 'tmux');
    const quote = (s) => `'${s.replaceAll("'", "'\\''")}'`;
    const line = `${quote(command)} ${args.map(quote).join(' ')}; echo "exit status $?"; exec sleep 1000`;
    const script = path.join(run.root, 'start.sh');
    write(script, `cd ${quote(run.cwd)}\n${line}\n`);
    this.env = env;
    this.tmux('-f', '/dev/null', 'new-session', '-d', '-s', 'play', '-x', '150', '-y', '50', `exec bash ${quote(script)}`);
  }

  tmux(...args) {
    return execFileSync('tmux', ['-S', this.socket, ...args], { env: this.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  }

  keys(...keys) {
    try {
      this.tmux('send-keys', '-t', 'play', ...keys);
    } catch {
      // The terminal is gone: the picture of the step shows it.
    }
  }

  screen() {
    try {
      return this.tmux('capture-pane', '-p', '-t', 'play');
    } catch {
      return '';
    }
  }

  /** The program that runs in the terminal: the child of the shell that started it. */
  program() {
    try {
      const shell = this.tmux('display', '-p', '-t', 'play', '#{pane_pid}').trim();
      return Number(fs.readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8').split(' ')[0]);
    } catch {
      return undefined;
    }
  }

  close() {
    try {
      this.tmux('kill-server');
    } catch {
      // Already gone.
    }
  }
}

// A step is one of
//   {"type": "text"}             types it and presses Enter ("enter": false leaves Enter out)
//   {"key": "Escape"}            presses a key, in tmux's words
//   {"see": "regex"}             waits until the terminal shows it
//   {"hook": "Stop", "count": 2} waits until that hook was called that often (1)
//   {"request": 3}               waits until the stand-in had that many requests
//   {"sleep": 500}               milliseconds
//   {"signal": "SIGTERM"}        to the process that runs the hooks ("to": "terminal" for the
//                                program in the terminal, where that is another one)
//   {"hang_up": true}            closes the terminal
//   {"shell": "command"}         runs it in the project
//   {"picture": "name"}          keeps the terminal's text
// "seconds" bounds the waiting (20). Every step is noted with its moment in log/steps.json.
async function steps(run, script, terminal) {
  const notes = [];
  for (const step of script.steps ?? []) {
    const note = { at: Date.now(), step, ok: true };
    notes.push(note);
    const bound = step.seconds ?? 20;
    if (step.type !== undefined) {
      terminal.keys('-l', step.type);
      await nap(900);
      if (step.enter !== false) terminal.keys('Enter');
    }
    if (step.key) terminal.keys(step.key);
    if (step.see) note.ok = await until(bound, () => new RegExp(step.see, 'm').test(terminal.screen()));
    if (step.hook) note.ok = await until(bound, () => recorded(run.log).filter((r) => r.name === step.hook).length >= (step.count ?? 1));
    if (step.request) note.ok = await until(bound, () => fs.readdirSync(path.join(run.log, 'requests')).length >= step.request);
    if (step.sleep) await nap(step.sleep);
    if (step.signal) {
      const p = step.to === 'terminal' ? { pid: terminal.program() } : agentProcess(run.log);
      note.target = p;
      try {
        process.kill(p.pid, step.signal);
      } catch (error) {
        note.ok = String(error);
      }
    }
    if (step.hang_up) terminal.tmux('kill-session', '-t', 'play');
    if (step.shell) {
      try {
        note.out = execFileSync('bash', ['-c', step.shell], { cwd: run.cwd, encoding: 'utf8', timeout: 20000 });
      } catch (error) {
        note.ok = String(error).slice(0, 500);
      }
    }
    if (step.picture && terminal) write(path.join(run.log, `screen-${step.picture}.txt`), terminal.screen());
    note.done = Date.now();
    if (note.ok === false) {
      note.screen = terminal?.screen();
      write(path.join(run.log, 'screen-missed.txt'), note.screen ?? '');
    }
  }
  json(path.join(run.log, 'steps.json'), notes);
  return notes;
}

/** Plays a script; resolves to {root, log, status, stdout, stderr, hooks, steps}. */
export async function play(agent, written, out) {
  if (out) fs.mkdirSync(out, { recursive: true });
  const run = newRun(out, written);
  const places = { $WORK: run.cwd, $ROOT: run.root };
  const script = JSON.parse(JSON.stringify(written).replace(/\$(WORK|ROOT)\b/g, (name) => JSON.stringify(places[name]).slice(1, -1)));
  const stand = await startStandIn({ conversations: script.turns ?? {}, log: run.log });
  const { command, args, env } = prepare(agent, run, script, stand.port);
  Object.assign(env, script.env);
  if (script.setup) {
    // Not synchronous: the setup may itself run an agent, which the stand-in has to answer.
    const setup = spawn('bash', ['-c', script.setup], { cwd: run.cwd, env, stdio: 'ignore', timeout: 60000 });
    await new Promise((done) => setup.on('close', done));
  }
  const result = { root: run.root, log: run.log };
  const seconds = script.seconds ?? 60;
  if ((script.mode ?? 'headless') === 'headless') {
    const child = spawn(command, args, { cwd: run.cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    const timer = setTimeout(() => {
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // Already gone.
      }
    }, seconds * 1000);
    result.stdout = '';
    result.stderr = '';
    child.stdout.on('data', (d) => (result.stdout += d));
    child.stderr.on('data', (d) => (result.stderr += d));
    const ended = new Promise((done) => {
      child.on('close', (code, signal) => done({ code, signal }));
      child.on('error', (error) => done({ error: String(error) }));
    });
    if (script.steps) result.steps = await steps(run, script, undefined);
    result.status = await ended;
    clearTimeout(timer);
  } else {
    const terminal = new Terminal(run, command, args, env);
    const timer = setTimeout(() => terminal.close(), seconds * 1000);
    try {
      result.steps = await steps(run, script, terminal);
    } finally {
      clearTimeout(timer);
      write(path.join(run.log, 'screen-end.txt'), terminal.screen());
      terminal.close();
    }
  }
  await nap(script.after ?? 1500);
  sweep(run.root);
  stand.close();
  result.hooks = recorded(run.log);
  json(path.join(run.log, 'result.json'), { ...result, hooks: undefined });
  return result;
}

/** The story of a run in lines: what happened when, in milliseconds since the first record. */
export function story(log) {
  const lines = [];
  const add = (at, text) => lines.push({ at, text });
  for (const h of recorded(log)) {
    const j = h.json ?? {};
    const more = [j.tool_name, j.source, j.reason, j.notification_type, j.agent_id && `agent=${j.agent_id}(${j.agent_type})`, j.error, j.is_interrupt !== undefined && `is_interrupt=${j.is_interrupt}`, h.signal && `killed by ${h.signal.signal}`];
    add(h.at, `hook ${h.name} ${more.filter(Boolean).map((t) => JSON.stringify(t).slice(0, 120)).join(' ')}`);
  }
  const folder = path.join(log, 'requests');
  for (const f of fs.readdirSync(folder).sort()) {
    const r = JSON.parse(fs.readFileSync(path.join(folder, f), 'utf8'));
    add(r.at, `request ${f} ${r.method} ${r.url.slice(0, 70)} ${r.conversation ?? ''} ${JSON.stringify(r.turn ?? '').slice(0, 110)}`);
    if (r.closed && !r.closed.complete) add(r.closed.at, `request ${f} cut off by the agent`);
  }
  const file = path.join(log, 'steps.json');
  if (fs.existsSync(file)) for (const s of JSON.parse(fs.readFileSync(file, 'utf8'))) add(s.done, `step ${JSON.stringify(s.step)} ${s.ok === true ? '' : `MISSED ${s.ok}`}`);
  lines.sort((a, b) => a.at - b.at);
  const first = lines[0]?.at ?? 0;
  return lines.map((l) => `${String(l.at - first).padStart(7)} ${l.text}`).join('\n');
}

if (process.argv[1] && fs.realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const [agent, file, flag, out] = process.argv.slice(2);
  if (!EVENTS[agent] || !file || (flag && flag !== '--out')) {
    console.error('usage: play.mjs claude|codex|gemini SCRIPT.json [--out DIR]');
    process.exit(2);
  }
  const result = await play(agent, JSON.parse(fs.readFileSync(file, 'utf8')), out);
  console.log(story(result.log));
  if (result.stdout) console.log(`--- stdout\n${result.stdout.slice(0, 3000)}`);
  if (result.stderr) console.log(`--- stderr\n${result.stderr.slice(0, 3000)}`);
  if (result.status) console.log(`--- status ${JSON.stringify(result.status)}`);
  console.log(`--- ${result.root}`);
  process.exit(0);
}
