//! Executes the commands of a script, in this process or elsewhere.

use super::world::World;
use super::{ScriptBackend, WorldSettings};

/// Executes the commands of scripts.
#[expect(clippy::missing_errors_doc, reason = "the error describes the invalid command")]
pub trait Executor {
    /// Starts a script with an empty coordinator. Returns `false` if the backend does not support
    /// the settings.
    fn begin(&mut self, settings: WorldSettings) -> Result<bool, String>;

    /// Executes one command of the script.
    fn execute(&mut self, line: &str) -> Result<CommandOutput, String>;
}

/// Output of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// `executed`, `replayed` or the variant of a refusal.
    pub label: String,
    /// The answer as the script prints it.
    pub text: String,
    /// The events as the script prints them.
    pub events: Vec<String>,
}

/// Executes commands on one coordinator in this process.
pub(super) struct LocalExecutor<'b, B: ScriptBackend> {
    backend: &'b mut B,
    /// Present once a script has begun.
    world: Option<World<B>>,
}

impl<'b, B: ScriptBackend> LocalExecutor<'b, B> {
    pub(super) const fn new(backend: &'b mut B) -> Self {
        Self { backend, world: None }
    }
}

impl<B: ScriptBackend> Executor for LocalExecutor<'_, B> {
    fn begin(&mut self, settings: WorldSettings) -> Result<bool, String> {
        // Drop the old world first, so that two never exist at the same time.
        self.world = None;
        self.world = self.backend.start(settings).map(World::new);
        Ok(self.world.is_some())
    }

    fn execute(&mut self, line: &str) -> Result<CommandOutput, String> {
        self.world.as_mut().ok_or("no script has begun")?.execute(line)
    }
}
