//! The answer of a hook, given once and in time: [`Timer`].

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tenure::text::visible;
use tenure_files::agents::event::{Event, What};
use tenure_files::agents::reply::Reply;
use tenure_files::agents::tool::Tool;

use crate::answer::Failure;

/// How long the hook may take. The agents give it ten seconds.
const LIMIT: Duration = Duration::from_secs(5);

/// Gives the answer, or the one for a failure if there is none in time.
pub(super) struct Timer(Arc<Mutex<HookCall>>);

/// What the answer for a failure depends on.
struct HookCall {
    tool: Tool,
    /// The agent's name for the event, and what it is.
    event: Option<(String, What)>,
    strict: bool,
}

impl Timer {
    pub(super) fn start(tool: Tool) -> Self {
        let call = Arc::new(Mutex::new(HookCall {
            tool,
            event: None,
            strict: false,
        }));
        let timer = Self(Arc::clone(&call));
        // Without a thread, only the agent's own limit is left.
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(LIMIT);
            let late = Self(call);
            let reply = late.lock().failure("it got no answer within 5 seconds");
            std::process::exit(late.answer(&reply));
        });
        timer
    }

    fn lock(&self) -> MutexGuard<'_, HookCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_of(&self, tool: Tool) {
        self.lock().tool = tool;
    }

    pub(super) fn is_about(&self, event: &Event) {
        self.lock().event = Some((event.name.clone(), event.what.clone()));
    }

    pub(super) fn is_strict(&self, strict: bool) {
        self.lock().strict = strict;
    }

    /// The answer when the hook itself failed.
    pub(super) fn failed(&self, failure: &Failure) -> Reply {
        self.lock().failure(failure.message())
    }

    /// Writes the answer and returns the exit code. The second caller never gets to write.
    pub(super) fn answer(&self, reply: &Reply) -> i32 {
        let call = self.lock();
        if let Some(err) = &reply.err {
            let _ = std::io::stderr().write_all(format!("{}\n", visible(err)).as_bytes());
        }
        if let Some(out) = &reply.out {
            let out = readable(out);
            let _ = std::io::stdout().write_all(format!("{out}\n").as_bytes());
        }
        // Until the process ends.
        std::mem::forget(call);
        reply.code
    }
}

/// The answer with all its texts escaped, because the agent's model reads them.
fn readable(answer: &Value) -> Value {
    match answer {
        Value::String(text) => visible(text).into(),
        Value::Array(all) => all.iter().map(readable).collect(),
        Value::Object(all) => {
            let all = all.iter();
            all.map(|(name, value)| (name.clone(), readable(value)))
                .collect()
        }
        other => other.clone(),
    }
}

impl HookCall {
    fn failure(&self, why: &str) -> Reply {
        let why = format!("tenure hook {}: {why}", self.tool.name());
        match &self.event {
            Some((_, What::BeforeEdit(_))) if self.strict => {
                let text = format!(
                    "The edit is refused because it can't be checked, and guard.strict is on. {why}"
                );
                Reply::refuse(self.tool, &text)
            }
            Some((name, what)) => Reply::failed(self.tool, name, what, &why),
            None => Reply::failed(self.tool, "", &What::Work, &why),
        }
    }
}
