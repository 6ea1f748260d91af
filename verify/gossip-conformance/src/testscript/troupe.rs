//! One script performed by several actors, each with a coordinator of its own on one store.
//!
//! An [`Actor`] stands in a process, or anywhere else that lines can be sent to: it is told one
//! line and answers one line. A [`Troupe`] gives every command to one of its actors, together with
//! what the script has said so far, and passes on what that one made of it. So each command meets a
//! coordinator that may know nothing of those before it.
//!
//! # Never
//! - performs two commands at a time: a script has one order, and its answers depend on it;
//! - lets an actor remember for another: leases and names travel with every command.

use std::collections::BTreeMap;

use super::arguments::{Arguments, number};
use super::stage::{Performed, Stage};
use super::wire::{Reply, Request, Situation};
use super::world::World;
use super::{ScriptBackend, WorldSettings};

/// Tells an actor a line and answers the line that it says.
pub type Line<'l> = Box<dyn FnMut(&str) -> String + 'l>;

/// Who performs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a test chooses one and matches nothing")]
pub enum Casting {
    /// Whoever is next, so that hardly anybody meets what it remembers. Only claims stay with the
    /// actor of their worker: a coordinator counts the cooldown of its own claims.
    InTurn,
    /// Each worker has an actor, who performs all that names the worker or a lease of it. Whoever
    /// is next performs the rest.
    ByWorker,
}

/// Actors that perform scripts together.
#[expect(missing_debug_implementations, reason = "closures show nothing of use")]
pub struct Troupe<'l> {
    actors: Vec<Line<'l>>,
    pub(super) casting: Casting,
    /// What the script has said so far, as the last actor wrote it.
    situation: Situation,
    /// Whose turn it is.
    turn: usize,
    /// Who was granted the lease of a name.
    homes: BTreeMap<String, usize>,
}

impl<'l> Troupe<'l> {
    /// A troupe of `actors`.
    ///
    /// # Panics
    ///
    /// Without any.
    #[must_use]
    pub fn new(actors: Vec<Line<'l>>, casting: Casting) -> Self {
        assert!(!actors.is_empty(), "somebody has to perform");
        let (situation, homes) = (Situation::default(), BTreeMap::new());
        Self { actors, casting, situation, turn: 0, homes }
    }

    fn ask(&mut self, actor: usize, request: &Request) -> Result<Reply, String> {
        Reply::parse(&(self.actors[actor])(&request.to_line()))
    }

    /// Who performs the command.
    fn cast(&mut self, arguments: &mut Arguments) -> Result<usize, String> {
        let stays = self.casting == Casting::ByWorker || arguments.command == "claim";
        let worker = arguments.take("worker").filter(|_| stays);
        let lease = arguments.take("lease").filter(|_| stays);
        if let Some(worker) = worker {
            let count = self.actors.len() as u64;
            return Ok(usize::try_from(number(&worker)? % count).expect("less than a length"));
        }
        if let Some(home) = lease.and_then(|name| self.homes.get(&name)) {
            return Ok(*home);
        }
        self.turn = (self.turn + 1) % self.actors.len();
        Ok(self.turn)
    }
}

impl Stage for Troupe<'_> {
    fn begin(&mut self, settings: WorldSettings) -> Result<bool, String> {
        (self.situation, self.homes) = (Situation::default(), BTreeMap::new());
        let mut begun = 0;
        for actor in 0..self.actors.len() {
            match self.ask(actor, &Request::Begin(settings))? {
                Reply::Begun => begun += 1,
                Reply::Skipped => {}
                Reply::Performed(..) => return Err("a beginning is no performance".to_owned()),
            }
        }
        match begun {
            0 => Ok(false),
            _ if begun == self.actors.len() => Ok(true),
            _ => Err(format!("only {begun} of {} actors can begin", self.actors.len())),
        }
    }

    fn perform(&mut self, line: &str) -> Result<Performed, String> {
        let mut arguments = Arguments::parse(line)?;
        let actor = self.cast(&mut arguments)?;
        if let Some(name) = arguments.take("as") {
            self.homes.insert(name, actor);
        }
        let request = Request::Perform(self.situation.clone(), line.to_owned());
        match self.ask(actor, &request)? {
            Reply::Performed(situation, performed) => {
                self.situation = situation;
                Ok(performed)
            }
            Reply::Begun | Reply::Skipped => Err("the actor performed nothing".to_owned()),
        }
    }
}

/// One of those who perform scripts together.
#[expect(missing_debug_implementations, reason = "a backend need not show itself")]
pub struct Actor<B: ScriptBackend> {
    backend: B,
    /// Present once a script has begun.
    world: Option<World<B>>,
}

impl<B: ScriptBackend> Actor<B> {
    /// An actor who starts a coordinator of `backend` for every script. All actors of a troupe
    /// begin the same scripts, so the n-th start of each must lead to one store.
    pub const fn new(backend: B) -> Self {
        Self { backend, world: None }
    }

    /// Does what a line says.
    pub fn answer(&mut self, line: &str) -> String {
        match Request::parse(line).and_then(|request| self.act(request)) {
            Ok(reply) => reply.to_line(),
            Err(message) => Reply::error_line(&message),
        }
    }

    fn act(&mut self, request: Request) -> Result<Reply, String> {
        match request {
            Request::Begin(settings) => {
                // The old coordinator lets go of its store first.
                self.world = None;
                self.world = self.backend.start(settings).map(World::new);
                Ok(if self.world.is_some() { Reply::Begun } else { Reply::Skipped })
            }
            Request::Perform(situation, line) => {
                let world = self.world.as_mut().ok_or("no script has begun")?;
                world.said = situation.read()?;
                let performed = world.perform(&line)?;
                Ok(Reply::Performed(Situation::of(&world.said), performed))
            }
        }
    }
}
