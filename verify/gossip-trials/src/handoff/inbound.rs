//! Accepts inbound handoffs of a worker on a separate thread with its own handles.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gossip_contracts::identity::WorkerId;
use gossip_coordination::AcquireScratch;
use gossip_handoff::lease_handoff::{Inbound, InboundNext};

use crate::Failure;
use crate::handoff::held::Held;
use crate::handoff::journal::{SharedJournal, What};
use crate::handoff::world::{CONFIG, Site};
use crate::run::now;

/// Idle sleep: half a tick, so that no tick is missed.
const REST: Duration = Duration::from_micros(500);

/// The thread and the channel of accepted shards.
pub(crate) struct InboundThread {
    accepted: Receiver<Held>,
    closes: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl InboundThread {
    pub(crate) fn start(site: Site, me: WorkerId, journal: SharedJournal) -> Self {
        let (sender, accepted) = channel();
        let closes = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&closes);
        let thread = std::thread::spawn(move || take(site, me, &journal, &sender, &stop));
        Self { accepted, closes, thread: Some(thread) }
    }

    /// Returns the next accepted shard.
    pub(crate) fn arrived(&mut self) -> Result<Option<Held>, Failure> {
        match self.accepted.try_recv() {
            Ok(held) => Ok(Some(held)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => match self.thread.take().map(JoinHandle::join) {
                Some(Ok(ended)) => ended.map(|()| None),
                Some(Err(_)) => Err("the thread that accepts shards panicked".into()),
                None => Ok(None),
            },
        }
    }

    /// Stops accepting; shards already accepted are still delivered.
    pub(crate) fn close(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Returns whether the thread has ended and all its shards were delivered.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_none()
    }
}

fn take(
    mut site: Site,
    me: WorkerId,
    journal: &SharedJournal,
    sender: &Sender<Held>,
    closes: &AtomicBool,
) -> Result<(), Failure> {
    let (mut inbound, mut scratch) = (Inbound::new(me, CONFIG), AcquireScratch::new());
    loop {
        if closes.load(Ordering::Relaxed) {
            inbound.close();
            if inbound.is_idle() {
                return Ok(());
            }
        }
        match inbound.step(&mut site.driver(), &mut scratch, now()) {
            InboundNext::Again => {}
            InboundNext::Wait(_) => std::thread::sleep(REST),
            InboundNext::Live(arrived) => {
                let mut held = Held::new(&arrived.view)?;
                let mut lines = vec![What::Accepted];
                // Process the first key before the record is updated.
                if !held.is_done() {
                    lines.push(What::Did(held.next));
                    held.next += 1;
                }
                journal.note(held.shard(), held.fence(), &lines)?;
                sender.send(held)?;
                writeln!(std::io::stdout(), "accepted")?;
            }
        }
    }
}
