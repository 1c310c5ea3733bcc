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
        let (at_once, later) = (Arc::new(AtomicU64::new(0)), Arc::clone(&delay));
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect(&server) {
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    pass(client, server, Arc::clone(&requests), Arc::clone(&at_once));
                    pass(back.0, back.1, Arc::clone(&answers), Arc::clone(&later));
                }
            }
        });
        Self {
            address,
            requests_cut,
            answers_cut,
            delay,
        }
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

fn pass(mut from: TcpStream, mut to: TcpStream, cut: Arc<AtomicBool>, delay: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            std::thread::sleep(Duration::from_millis(delay.load(Ordering::SeqCst)));
            while cut.load(Ordering::SeqCst) {
                std::thread::sleep(PAUSE);
            }
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
