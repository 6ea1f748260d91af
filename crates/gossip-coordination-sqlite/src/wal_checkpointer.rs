//! Checkpoints of the write-ahead log: how long the log is, and when it is copied into the database
//! file.
//!
//! A checkpoint writes every changed page and syncs twice, so it is kept off the commit path. A
//! thread with its own connection, the checkpointer, runs `PASSIVE` checkpoints concurrently with
//! commits: neither waits for the other. But SQLite restarts the log from its beginning only when
//! all of it is copied and no reader uses it, and commits without a pause always leave some frames.
//! So when the checkpointer has nearly caught up, it requests that the next group copy the
//! remainder before it begins (`RESTART`), and the log restarts with that group.
//!
//! | length of the log | action |
//! |---|---|
//! | below [`FRAMES_SOFT`] | none |
//! | from there on, every [`FRAMES_STRIDE`] | the checkpointer copies |
//! | nearly copied | the next group copies the remainder, and the log restarts |
//! | from [`FRAMES_HARD`] on, every [`FRAMES_STRIDE`] | a group waits for the checkpointer and copies the remainder |
//!
//! The last row is for a checkpointer that cannot keep up. Beyond that only a long-running reader,
//! such as a backup, can hold the log back: it then grows until the reader ends. A failed
//! checkpoint loses nothing, because the log still holds every frame; the next one retries.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

/// Frames (pages of 4 KiB) from which on the log is checkpointed: 4 MiB, SQLite's default.
pub(crate) const FRAMES_SOFT: i32 = 1_000;

/// Frames by which the log grows before the next checkpoint.
const FRAMES_STRIDE: i32 = 250;

/// Frames from which on commits checkpoint themselves: 64 MiB.
pub(crate) const FRAMES_HARD: i32 = 16_000;

/// Frames that a group may be requested to copy before it begins: 1 MiB. Groups of 64 callers write
/// about as much during one sync of the checkpointer, so it would rarely find less.
const FRAMES_REMAINDER_MAX: i32 = 249;

/// How long a forced checkpoint waits for readers of the log, which usually read for a fraction of
/// a millisecond.
const READERS_TIMEOUT: Duration = Duration::from_millis(20);

/// Checkpoints in a row to catch up. Each leaves the frames that were committed meanwhile, a small
/// part of those it copied.
const ROUNDS_MAX: usize = 4;

const _: () = assert!(FRAMES_REMAINDER_MAX < FRAMES_STRIDE);
const _: () = assert!(FRAMES_STRIDE < FRAMES_SOFT);
const _: () = assert!(2 * FRAMES_SOFT < FRAMES_HARD);

/// State shared by the writer and the checkpointer thread.
#[derive(Debug)]
pub(crate) struct WalCheckpointer {
    /// Frames in the log after the last commit of this process, as SQLite counted them.
    frames: AtomicI32,
    /// Whether the next group is requested to copy the remainder.
    remainder_requested: AtomicBool,
    /// Held during a checkpoint: SQLite allows one at a time, and fails others as busy.
    checkpointing: Mutex<()>,
    command: Mutex<Command>,
    commanded: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    None,
    Checkpoint,
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

    /// Registers a hook that records the length of the log after each commit of `connection`.
    pub(crate) fn watch(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let checkpointer = Arc::clone(self);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, frames| {
            checkpointer.frames.store(frames, Ordering::Relaxed);
            Ok(())
        }))
    }

    /// Checkpoints on command until [`WalCheckpointer::stop`]; the body of the thread.
    pub(crate) fn run(&self, connection: &Connection) {
        while self.wait_for_command() {
            let has_caught_up = (0..ROUNDS_MAX).any(|_| {
                let _exclusive = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
                // A failure is not reported: either another process checkpoints, or the cause
                // persists and the next commit meets it, too.
                let copied = connection.wal_checkpoint_v2(Some("main"), CheckpointMode::PASSIVE);
                copied.is_ok_and(|(frames, copied)| frames - copied <= FRAMES_REMAINDER_MAX)
            });
            if has_caught_up {
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
        // A later checkpoint request must not overwrite the stop, or the thread would never end.
        if *pending != Command::Stop {
            *pending = command;
        }
        self.commanded.notify_one();
    }

    /// Waits for a command; returns whether to checkpoint, `false` to stop.
    fn wait_for_command(&self) -> bool {
        let mut command = self.command();
        loop {
            match *command {
                Command::Stop => return false,
                Command::Checkpoint => {
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

/// The writer's side: when it requests a checkpoint and when it runs one. Only the leader of a
/// group uses it.
#[derive(Debug)]
pub(crate) struct CheckpointSchedule {
    checkpointer: Arc<WalCheckpointer>,
    /// The length from which on the next checkpoint is requested.
    next_request: i32,
    /// The length from which on a group runs a checkpoint itself.
    next_forced: i32,
}

impl CheckpointSchedule {
    pub(crate) const fn new(checkpointer: Arc<WalCheckpointer>) -> Self {
        Self { checkpointer, next_request: FRAMES_SOFT, next_forced: FRAMES_HARD }
    }

    /// Checkpoints on the writer's connection if that is requested or overdue. The connection must
    /// be in no transaction. A failure is not reported: a later group retries.
    pub(crate) fn before_group(&mut self, connection: &Connection) {
        let shared = &self.checkpointer;
        let frames = shared.frames.load(Ordering::Relaxed);
        let is_overdue = frames >= self.next_forced;
        if is_overdue {
            // Commits wait for the checkpointer here, which bounds the length of the log.
            let _exclusive = shared.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
            restart_wal(connection, READERS_TIMEOUT);
            self.next_forced = frames + FRAMES_STRIDE;
        } else if shared.remainder_requested.swap(false, Ordering::Relaxed)
            // Below the hard limit a commit never waits for the checkpointer.
            && let Ok(_exclusive) = shared.checkpointing.try_lock()
        {
            restart_wal(connection, Duration::ZERO);
        }
    }

    /// Requests a checkpoint if the log has grown enough.
    pub(crate) fn after_group(&mut self) {
        let frames = self.checkpointer.frames.load(Ordering::Relaxed);
        if frames < FRAMES_SOFT {
            // A log this short has restarted, so both limits count from its beginning again.
            (self.next_request, self.next_forced) = (FRAMES_SOFT, FRAMES_HARD);
        } else if frames >= self.next_request {
            self.next_request = frames + FRAMES_STRIDE;
            self.checkpointer.send(Command::Checkpoint);
        }
    }
}

/// Copies the whole log and restarts it, unless readers use it for longer than `timeout`. A failure
/// loses nothing; a later group retries.
fn restart_wal(connection: &Connection, timeout: Duration) {
    if connection.busy_timeout(timeout).is_ok() {
        let _ = connection.wal_checkpoint_v2(Some("main"), CheckpointMode::RESTART);
    }
    // The writer polls for the write lock itself, in shorter steps than SQLite's busy handler.
    let _ = connection.busy_timeout(Duration::ZERO);
}
