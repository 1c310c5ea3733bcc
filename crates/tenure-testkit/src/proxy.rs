//! A connection that a test can cut: [`Proxy`].

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Passes connections on to a server, until they are cut. It ends with this process.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    cut: Arc<AtomicBool>,
}

/// How often a cut connection looks whether it is whole again.
const PAUSE: Duration = Duration::from_millis(20);

impl Proxy {
    /// A proxy of the server at this address.
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicBool::new(false));
        let (server, is_cut) = (server.to_owned(), Arc::clone(&cut));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect(&server) {
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    pass(client, server, Arc::clone(&is_cut));
                    pass(back.0, back.1, Arc::clone(&is_cut));
                }
            }
        });
        Self { address, cut }
    }

    /// Where it listens, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Passes nothing on from here, in silence: both ends believe that the connection is there.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Passes on what is there, and what comes.
    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
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
