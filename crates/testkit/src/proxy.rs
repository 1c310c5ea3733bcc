//! A connection that a test can cut: [`Proxy`].

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Passes connections on to a server, until they are cut. It ends with this process.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    requests_cut: Arc<AtomicBool>,
    answers_cut: Arc<AtomicBool>,
    /// How long each answer is held back, in milliseconds.
    delay: Arc<AtomicU64>,
    /// Whether there was a connection.
    used: Arc<AtomicBool>,
}

/// How often a cut connection looks whether it is whole again.
const PAUSE: Duration = Duration::from_millis(20);

impl Proxy {
    /// A proxy of the server at this address.
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = || Arc::new(AtomicBool::new(false));
        let (requests_cut, answers_cut) = (cut(), cut());
        let (requests, answers) = (Arc::clone(&requests_cut), Arc::clone(&answers_cut));
        let delay = Arc::new(AtomicU64::new(0));
        let later = Arc::clone(&delay);
        let held = |cut: Arc<AtomicBool>| Arc::new(move || cut.load(Ordering::SeqCst));
        let (requests, answers) = (held(requests), held(answers));
        let at_once = Arc::new(|| Duration::ZERO);
        let later = Arc::new(move || Duration::from_millis(later.load(Ordering::SeqCst)));
        let used = cut();
        let is_used = Arc::clone(&used);
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                is_used.store(true, Ordering::SeqCst);
                if let Ok(server) = TcpStream::connect(&server) {
                    let (there, back) = join(client, server);
                    pass(Vec::new(), there, requests.clone(), at_once.clone());
                    pass(Vec::new(), back, answers.clone(), later.clone());
                }
            }
        });
        Self {
            address,
            requests_cut,
            answers_cut,
            delay,
            used,
        }
    }

    /// Whether a client has connected.
    pub fn was_used(&self) -> bool {
        self.used.load(Ordering::SeqCst)
    }

    /// Where it listens, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Passes nothing on from here, in silence: both ends believe that the connection is there.
    pub fn cut(&self) {
        self.requests_cut.store(true, Ordering::SeqCst);
        self.cut_answers();
    }

    /// Passes requests on from here, but no answers.
    pub fn cut_answers(&self) {
        self.answers_cut.store(true, Ordering::SeqCst);
    }

    /// Holds every answer back for a while from here.
    pub fn delay_answers(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.delay.store(by, Ordering::SeqCst);
    }

    /// Passes on what is there, and what comes.
    pub fn mend(&self) {
        self.requests_cut.store(false, Ordering::SeqCst);
        self.answers_cut.store(false, Ordering::SeqCst);
    }
}

/// One direction of a connection: from here to there.
type Direction = (TcpStream, TcpStream);

/// Both directions of a connection through a proxy.
pub(crate) fn join(client: TcpStream, server: TcpStream) -> (Direction, Direction) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
    ((client, server), back)
}

/// Passes on what was read already and what comes, late, and not while it is held back.
pub(crate) fn pass(
    mut read: Vec<u8>,
    (mut from, mut to): Direction,
    held: Arc<impl Fn() -> bool + Send + Sync + 'static>,
    delay: Arc<impl Fn() -> Duration + Send + Sync + 'static>,
) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        loop {
            while held() {
                std::thread::sleep(PAUSE);
            }
            if to.write_all(&read).is_err() {
                break;
            }
            let Ok(length @ 1..) = from.read(&mut buffer) else {
                break;
            };
            std::thread::sleep(delay());
            read = buffer[..length].to_vec();
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
