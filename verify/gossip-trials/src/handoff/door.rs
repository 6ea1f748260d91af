//! Where shards come in: a thread that takes what is offered to this worker, on handles of its own.

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

/// How long it rests when there is nothing to do: half a tick, so that no tick is slept through.
const REST: Duration = Duration::from_micros(500);

/// The thread, and what comes from it.
pub(crate) struct Door {
    came_in: Receiver<Held>,
    closes: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Door {
    pub(crate) fn open(site: Site, me: WorkerId, journal: SharedJournal) -> Self {
        let (sender, came_in) = channel();
        let closes = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&closes);
        let thread = std::thread::spawn(move || take(site, me, &journal, &sender, &told));
        Self { came_in, closes, thread: Some(thread) }
    }

    /// The next shard that came in.
    pub(crate) fn arrived(&mut self) -> Result<Option<Held>, Failure> {
        match self.came_in.try_recv() {
            Ok(held) => Ok(Some(held)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => match self.thread.take().map(JoinHandle::join) {
                Some(Ok(ended)) => ended.map(|()| None),
                Some(Err(_)) => Err("the thread that takes shards panicked".into()),
                None => Ok(None),
            },
        }
    }

    /// Nothing more comes in; what was accepted does.
    pub(crate) fn close(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Whether everything is in.
    pub(crate) fn is_shut(&self) -> bool {
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
                // The first key, before the record says anything.
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
