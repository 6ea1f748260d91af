//! How long the write-ahead log is, and who copies it back into the file.
//!
//! Copying back writes every changed page and syncs twice, so it is kept off the commit path. A
//! thread with its own connection, the keeper, copies while commits go on (`PASSIVE`: it waits for
//! nobody and nobody waits for it). But a log starts over only when all of it is copied and nobody
//! reads it, and commits that never pause always leave some frames. So when the keeper has nearly
//! caught up, it asks the next group to copy what little is left before it begins (`RESTART`), and
//! the log starts over with that group.
//!
//! | length of the log | what happens |
//! |---|---|
//! | below [`FRAMES_SOFT`] | nothing |
//! | from there on, every [`FRAMES_STRIDE`] | the keeper copies |
//! | nearly copied | the next group copies the rest, and the log starts over |
//! | from [`FRAMES_HARD`] on, every [`FRAMES_STRIDE`] | a group waits for the keeper and copies the rest |
//!
//! The last row is for a keeper that cannot keep up. What can hold the log back beyond that is one
//! reader that does not end, such as a backup: then the log grows until the reader is done. A copy
//! that fails loses nothing, because the log still has everything; the next one tries again.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

/// Frames (pages of 4 KiB) from which on the log is copied back: 4 MiB, SQLite's own default.
pub(crate) const FRAMES_SOFT: i32 = 1_000;

/// How much the log grows before another copy is tried.
const FRAMES_STRIDE: i32 = 250;

/// Frames from which on commits copy themselves: 64 MiB.
pub(crate) const FRAMES_HARD: i32 = 16_000;

/// Frames that a group may be asked to copy before it begins: 1 MiB. Groups of 64 callers write
/// about as much while the keeper waits for the disk once, so it would seldom find less.
const FRAMES_REMAINDER_MAX: i32 = 249;

/// How long a group that copies because the log is too long waits for readers to look away from
/// it. They read for a fraction of a millisecond as a rule.
const READERS_TIMEOUT: Duration = Duration::from_millis(20);

/// Times that the keeper copies in a row to catch up. Each leaves what was committed meanwhile, a
/// small part of what it copied.
const ROUNDS_MAX: usize = 4;

const _: () = assert!(FRAMES_REMAINDER_MAX < FRAMES_STRIDE);
const _: () = assert!(FRAMES_STRIDE < FRAMES_SOFT);
const _: () = assert!(2 * FRAMES_SOFT < FRAMES_HARD);

/// What the writer and the keeper tell each other.
#[derive(Debug)]
pub(crate) struct WalCheckpointer {
    /// Frames after the last commit of this process, as SQLite counted them.
    frames: AtomicI32,
    /// Whether so little is left to copy that a group shall do it.
    remainder_requested: AtomicBool,
    /// Held by whoever copies: SQLite lets only one.
    checkpointing: Mutex<()>,
    command: Mutex<Command>,
    commanded: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    None,
    Copy,
    Stop,
}

impl WalCheckpointer {
    pub(crate) const fn new() -> Self {
        Self {
            frames: AtomicI32::new(0),
            remainder_requested: AtomicBool::new(false),
            checkpointing: Mutex::new(()),
            command: Mutex::new(Command::None),
            commanded: Condvar::new(),
        }
    }

    /// Lets SQLite tell after each commit of `connection` how long the log is.
    pub(crate) fn watch(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let log = Arc::clone(self);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, frames| {
            log.frames.store(frames, Ordering::Relaxed);
            Ok(())
        }))
    }

    /// Copies until told to stop: the life of the keeper's thread.
    pub(crate) fn run(&self, connection: &Connection) {
        while self.wait_for_command() {
            let nearly = (0..ROUNDS_MAX).any(|_| {
                let _exclusive = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
                // Another process copies, or something is wrong that the next try meets again.
                let copied = connection.wal_checkpoint_v2(Some("main"), CheckpointMode::PASSIVE);
                copied.is_ok_and(|(frames, copied)| frames - copied <= FRAMES_REMAINDER_MAX)
            });
            if nearly {
                self.remainder_requested.store(true, Ordering::Relaxed);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn frames(&self) -> i32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Ends [`WalCheckpointer::run`].
    pub(crate) fn stop(&self) {
        self.send(Command::Stop);
    }

    fn send(&self, command: Command) {
        let mut pending = self.command();
        if *pending != Command::Stop {
            *pending = command;
        }
        self.commanded.notify_one();
    }

    /// Whether there is something to copy; false to stop.
    fn wait_for_command(&self) -> bool {
        let mut command = self.command();
        loop {
            match *command {
                Command::Stop => return false,
                Command::Copy => {
                    *command = Command::None;
                    return true;
                }
                Command::None => {
                    command = self.commanded.wait(command).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn command(&self) -> MutexGuard<'_, Command> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the writer remembers of the log. Only whoever leads a group has it.
#[derive(Debug)]
pub(crate) struct CheckpointSchedule {
    log: Arc<WalCheckpointer>,
    /// The length from which on the keeper is called next.
    next_request: i32,
    /// The length from which on a group copies by itself.
    next_forced: i32,
}

impl CheckpointSchedule {
    pub(crate) const fn new(log: Arc<WalCheckpointer>) -> Self {
        Self { log, next_request: FRAMES_SOFT, next_forced: FRAMES_HARD }
    }

    /// Copies on the writer's connection if it is asked for or overdue.
    pub(crate) fn before_group(&mut self, connection: &Connection) {
        let frames = self.log.frames.load(Ordering::Relaxed);
        let is_overdue = frames >= self.next_forced;
        if is_overdue {
            // Waiting for the keeper is what keeps the log from growing without end.
            let _exclusive = self.log.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
            restart_wal(connection, READERS_TIMEOUT);
            self.next_forced = frames + FRAMES_STRIDE;
        } else if self.log.remainder_requested.swap(false, Ordering::Relaxed)
            && let Ok(_exclusive) = self.log.checkpointing.try_lock()
        {
            restart_wal(connection, Duration::ZERO);
        }
    }

    /// Calls the keeper if the log has grown enough.
    pub(crate) fn after_group(&mut self) {
        let frames = self.log.frames.load(Ordering::Relaxed);
        if frames < FRAMES_SOFT {
            (self.next_request, self.next_forced) = (FRAMES_SOFT, FRAMES_HARD);
        } else if frames >= self.next_request {
            self.next_request = frames + FRAMES_STRIDE;
            self.log.send(Command::Copy);
        }
    }
}

/// Copies everything and lets the log start over, unless readers are in the way for longer than
/// `timeout`. Failing loses nothing, and the next turn comes.
fn restart_wal(connection: &Connection, timeout: Duration) {
    if connection.busy_timeout(timeout).is_ok() {
        let _ = connection.wal_checkpoint_v2(Some("main"), CheckpointMode::RESTART);
    }
    // The writer waits for the file's lock by itself.
    let _ = connection.busy_timeout(Duration::ZERO);
}
