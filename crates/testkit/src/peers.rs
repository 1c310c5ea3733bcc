//! The connections between the members of a cluster, which a test can cut: [`Peers`].
//!
//! Each member is reached by the others through a proxy. A member that is cut off gets nothing from the others, and the
//! others get nothing from it: who opened a connection is told by the name that etcd sends with its first request. Both
//! ends believe that the connection is there.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::proxy::{join, pass};

/// The header in which a member says who it is.
const FROM: &str = "x-server-from: ";

/// The proxies of all members. They end with this process.
#[derive(Debug)]
pub(crate) struct Peers {
    addresses: Vec<String>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    cut_off: Vec<AtomicBool>,
    /// The names of the members, once they are known.
    names: OnceLock<Vec<String>>,
}

impl State {
    /// Whether nothing passes between a member and the one that connected to it.
    fn holds_back(&self, to: usize, from: &str) -> bool {
        let is_cut = |member: usize| self.cut_off[member].load(Ordering::SeqCst);
        let names = self.names.get().map_or(&[][..], Vec::as_slice);
        let from = names.iter().position(|name| name == from);
        is_cut(to) || from.is_some_and(is_cut)
    }
}

impl Peers {
    /// Proxies of the members at these addresses.
    pub(crate) fn of(members: &[String]) -> Self {
        let state = Arc::new(State {
            cut_off: members.iter().map(|_| AtomicBool::new(false)).collect(),
            names: OnceLock::new(),
        });
        let listen = |(number, member): (usize, &String)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (member, state) = (member.clone(), Arc::clone(&state));
            std::thread::spawn(move || {
                for peer in listener.incoming().map_while(Result::ok) {
                    let (member, state) = (member.clone(), Arc::clone(&state));
                    std::thread::spawn(move || connect(peer, &member, number, &state));
                }
            });
            address
        };
        Self {
            addresses: members.iter().enumerate().map(listen).collect(),
            state,
        }
    }

    /// Where the proxy of a member listens.
    pub(crate) fn address(&self, member: usize) -> &str {
        &self.addresses[member]
    }

    /// What the members call themselves.
    pub(crate) fn name(&self, names: Vec<String>) {
        self.state.names.set(names).unwrap();
    }

    /// Whether nothing passes to and from a member from here on.
    pub(crate) fn cut(&self, member: usize, cut: bool) {
        self.state.cut_off[member].store(cut, Ordering::SeqCst);
    }
}

fn connect(mut peer: TcpStream, member: &str, number: usize, state: &Arc<State>) {
    let mut first = [0; 16 * 1024];
    let Ok(length @ 1..) = peer.read(&mut first) else {
        return;
    };
    let Ok(server) = TcpStream::connect(member) else {
        return;
    };
    let text = String::from_utf8_lossy(&first[..length]).to_lowercase();
    let from = text.split_once(FROM).map_or("", |(_, rest)| rest);
    let from = from.lines().next().unwrap_or_default().trim().to_owned();
    let state = Arc::clone(state);
    let held = Arc::new(move || state.holds_back(number, &from));
    let no_delay = Arc::new(|| Duration::ZERO);
    let (there, back) = join(peer, server);
    pass(
        first[..length].to_vec(),
        there,
        held.clone(),
        no_delay.clone(),
    );
    pass(Vec::new(), back, held, no_delay);
}
