//! A proxy that knows where messages of PostgreSQL's protocol begin, and cuts the connection after
//! a given one.
//!
//! The other proxies forward bytes as they arrive. The server sends the whole answer to a commit in
//! one packet, so only a proxy that parses it can lose the acknowledgement and keep the rows.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Which side sends the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Where connections are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Nowhere; the tags of messages are recorded.
    Record(Vec<(Side, u8)>),
    /// After so many more messages of this side have passed; the next one does not.
    CutAfter(Side, usize),
    /// The cut has happened.
    Done,
}

/// A proxy before a server. Its threads end with the connections.
#[derive(Debug)]
pub(crate) struct MessageProxy {
    port: u16,
    rule: Arc<Mutex<Rule>>,
    cuts: Arc<AtomicUsize>,
}

impl MessageProxy {
    /// A proxy before a port on loopback that lets everything through.
    pub(crate) fn before(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let rule = Arc::new(Mutex::new(Rule::Done));
        let cuts = Arc::<AtomicUsize>::default();
        let (shared, counted) = (Arc::clone(&rule), Arc::clone(&cuts));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                connect(&near, &far, &shared, &counted);
            }
        });
        Self { port, rule, cuts }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Records messages from now on.
    pub(crate) fn record(&self) {
        *self.rule.lock().unwrap() = Rule::Record(Vec::new());
    }

    /// Returns the messages recorded since [`record`](Self::record).
    pub(crate) fn recorded(&self) -> Vec<(Side, u8)> {
        match std::mem::replace(&mut *self.rule.lock().unwrap(), Rule::Done) {
            Rule::Record(messages) => messages,
            other => panic!("{other:?}"),
        }
    }

    /// Cuts the connection that carries the message after `count` more messages of `side`.
    pub(crate) fn cut_after(&self, side: Side, count: usize) {
        *self.rule.lock().unwrap() = Rule::CutAfter(side, count);
    }

    /// Removes a cut that has not happened.
    pub(crate) fn cut_nothing(&self) {
        *self.rule.lock().unwrap() = Rule::Done;
    }

    /// Returns the number of cuts, which rises.
    pub(crate) fn cuts(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.cuts)
    }

    /// Returns whether the cut has happened, and removes it otherwise.
    pub(crate) fn has_cut(&self) -> bool {
        std::mem::replace(&mut *self.rule.lock().unwrap(), Rule::Done) == Rule::Done
    }
}

fn connect(near: &TcpStream, far: &TcpStream, rule: &Arc<Mutex<Rule>>, cuts: &Arc<AtomicUsize>) {
    let ways = [(near, far, Side::Client), (far, near, Side::Server)];
    for (from, to, side) in ways {
        from.set_nodelay(true).unwrap();
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let (rule, cuts) = (Arc::clone(rule), Arc::clone(cuts));
        thread::spawn(move || {
            // An end that closes is an end of the connection.
            if forward(&from, &to, side, &rule).is_ok() {
                cuts.fetch_add(1, Ordering::Relaxed);
            }
            for end in [from, to] {
                let _ = end.shutdown(Shutdown::Both);
            }
        });
    }
}

/// Forwards messages until an end closes, which is an error, or the rule cuts.
fn forward(
    mut from: &TcpStream,
    mut to: &TcpStream,
    side: Side,
    rule: &Mutex<Rule>,
) -> std::io::Result<()> {
    if side == Side::Client {
        // The first message has no tag.
        let mut message = vec![0; 4];
        from.read_exact(&mut message)?;
        read_body(from, &mut message, 0)?;
        to.write_all(&message)?;
    }
    loop {
        let mut message = vec![0; 5];
        from.read_exact(&mut message)?;
        read_body(from, &mut message, 1)?;
        let passes = {
            let mut rule = rule.lock().unwrap();
            match &mut *rule {
                Rule::Record(messages) => {
                    messages.push((side, message[0]));
                    true
                }
                Rule::CutAfter(of, 0) if *of == side => {
                    *rule = Rule::Done;
                    false
                }
                Rule::CutAfter(of, count) if *of == side => {
                    *count -= 1;
                    true
                }
                Rule::CutAfter(..) | Rule::Done => true,
            }
        };
        if !passes {
            return Ok(());
        }
        to.write_all(&message)?;
    }
}

/// Reads the rest of a message whose length is at `at`.
fn read_body(mut from: &TcpStream, message: &mut Vec<u8>, at: usize) -> std::io::Result<()> {
    let length = u32::from_be_bytes(message[at..at + 4].try_into().expect("four bytes"));
    let head = message.len();
    message.resize(at + length as usize, 0);
    from.read_exact(&mut message[head..])
}
