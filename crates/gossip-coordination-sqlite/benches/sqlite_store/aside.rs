//! Checkpoints off the commit path, as `wal_checkpointer.rs` of the crate does them, with the same
//! limits: a thread checkpoints concurrently with commits, the writer checkpoints the remainder so
//! that the log restarts, and all of it if the log grows too long.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;

/// Frames from which on the log is copied.
const FRAMES_SOFT: i32 = 1_000;
/// How much the log grows before another copy.
const FRAMES_STRIDE: i32 = 250;
/// Frames from which on the writer waits for the log to be copied.
const FRAMES_HARD: i32 = 16_000;
/// Frames that are left to the writer.
const FRAMES_REST: i32 = 249;
/// Copies in a row.
const ROUNDS_MAX: usize = 4;
/// How long a writer that must copy waits for readers. There are none.
const PATIENCE: Duration = Duration::from_millis(20);

/// What the writer has of the thread that copies.
pub struct Aside {
    shared: Arc<Shared>,
    /// The thread ends with it. There is never more than one call to be answered.
    calls: mpsc::SyncSender<()>,
    next_call: i32,
    next_own: i32,
}

#[derive(Default)]
struct Shared {
    /// Length of the log after the last commit.
    frames: AtomicI32,
    rest_wanted: AtomicBool,
    copying: Mutex<()>,
}

impl Aside {
    /// Starts the thread, for the file at `path` and its only writer.
    pub fn start(path: &Path, writer: &mut Connection) -> Self {
        let shared = Arc::new(Shared::default());
        writer.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        writer.busy_timeout(Duration::ZERO).unwrap();
        let seen = Arc::clone(&shared);
        let note = move |_: &mut Wal, frames| {
            seen.frames.store(frames, Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(note)).unwrap();
        let (calls, called) = mpsc::sync_channel(1);
        let (keeper, copied) = (Connection::open(path).unwrap(), Arc::clone(&shared));
        std::thread::spawn(move || copied.run(&keeper, &called));
        Self { shared, calls, next_call: FRAMES_SOFT, next_own: FRAMES_HARD }
    }

    /// Copies on the writer's connection if it is asked for or overdue.
    pub fn before_commit(&mut self, connection: &Connection) {
        let frames = self.shared.frames.load(Ordering::Relaxed);
        if frames >= self.next_own {
            let _alone = self.shared.copying.lock().unwrap();
            connection.busy_timeout(PATIENCE).unwrap();
            start_over(connection);
            connection.busy_timeout(Duration::ZERO).unwrap();
            self.next_own = frames + FRAMES_STRIDE;
        } else if self.shared.rest_wanted.swap(false, Ordering::Relaxed)
            && let Ok(_alone) = self.shared.copying.try_lock()
        {
            start_over(connection);
        }
    }

    /// Calls the thread if the log has grown enough.
    pub fn after_commit(&mut self) {
        let frames = self.shared.frames.load(Ordering::Relaxed);
        if frames < FRAMES_SOFT {
            (self.next_call, self.next_own) = (FRAMES_SOFT, FRAMES_HARD);
        } else if frames >= self.next_call {
            self.next_call = frames + FRAMES_STRIDE;
            // If it is full, the thread is called already.
            let _ = self.calls.try_send(());
        }
    }
}

impl Shared {
    /// The life of the thread.
    fn run(&self, connection: &Connection, called: &mpsc::Receiver<()>) {
        while called.recv().is_ok() {
            let nearly = (0..ROUNDS_MAX).any(|_| {
                let _alone = self.copying.lock().unwrap();
                let copied = connection.wal_checkpoint_v2(Some("main"), CheckpointMode::PASSIVE);
                copied.is_ok_and(|(frames, copied)| frames - copied <= FRAMES_REST)
            });
            if nearly {
                self.rest_wanted.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn start_over(connection: &Connection) {
    // Failing loses nothing, and the next turn comes.
    let _ = connection.wal_checkpoint_v2(Some("main"), CheckpointMode::RESTART);
}
