//! Where the commands of a script are performed: here, or by somebody who is told them.

use super::world::World;
use super::{ScriptBackend, WorldSettings};

/// Performs the commands of scripts.
#[expect(clippy::missing_errors_doc, reason = "an error says what is wrong with a command")]
pub trait Stage {
    /// Begins a script with an empty coordinator; `false` if there is none with such settings.
    fn begin(&mut self, settings: WorldSettings) -> Result<bool, String>;

    /// Performs one command of the script.
    fn perform(&mut self, line: &str) -> Result<Performed, String>;
}

/// What a command came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Performed {
    /// `executed`, `replayed` or the variant of a refusal.
    pub label: String,
    /// What the script shows.
    pub text: String,
    /// The events, as the script shows them.
    pub events: Vec<String>,
}

/// One coordinator in this process.
pub(super) struct Here<'b, B: ScriptBackend> {
    backend: &'b mut B,
    /// Present once a script has begun.
    world: Option<World<B>>,
}

impl<'b, B: ScriptBackend> Here<'b, B> {
    pub(super) const fn new(backend: &'b mut B) -> Self {
        Self { backend, world: None }
    }
}

impl<B: ScriptBackend> Stage for Here<'_, B> {
    fn begin(&mut self, settings: WorldSettings) -> Result<bool, String> {
        // The old world goes first: two need not fit beside each other.
        self.world = None;
        self.world = self.backend.start(settings).map(World::new);
        Ok(self.world.is_some())
    }

    fn perform(&mut self, line: &str) -> Result<Performed, String> {
        self.world.as_mut().ok_or("no script has begun")?.perform(line)
    }
}
