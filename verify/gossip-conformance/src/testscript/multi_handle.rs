//! Runs one script through several coordinator handles on one store.
//!
//! A [`HandleServer`] owns one coordinator, in this process or in another one: it reads one request
//! line and writes one reply line. A [`MultiHandle`] sends each command to one of its handles,
//! together with the script state (clock, leases, names), and stores the state that the reply
//! returns. A command therefore reaches a coordinator that may have seen none of the previous ones.
//!
//! # Invariants
//! - Commands run one at a time: a script has one order, and its answers depend on it.
//! - Handles share only the store: leases and names travel with every command.

use std::collections::BTreeMap;

use super::arguments::{Arguments, number};
use super::executor::{CommandOutput, Executor};
use super::wire::{EncodedState, Reply, Request};
use super::world::World;
use super::{ScriptBackend, WorldSettings};

/// Sends a request line to a handle and returns its reply line.
pub type Channel<'l> = Box<dyn FnMut(&str) -> String + 'l>;

/// Selects the handle that executes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a test chooses one and matches nothing")]
pub enum Routing {
    /// The next handle, so that a command rarely finds its shard in the handle's cache. Only claims
    /// stay with the handle of their worker: handles of different processes count the cooldown of
    /// their own claims.
    RoundRobin,
    /// The worker's handle for commands that name a worker or its lease, the next handle for all
    /// others.
    ByWorker,
}

/// Executes scripts through several handles.
#[expect(missing_debug_implementations, reason = "closures show nothing of use")]
pub struct MultiHandle<'l> {
    handles: Vec<Channel<'l>>,
    pub(super) routing: Routing,
    /// The script state that the last reply returned.
    state: EncodedState,
    /// The last handle that round-robin selected.
    turn: usize,
    /// The handle that acquired each named lease.
    homes: BTreeMap<String, usize>,
}

impl<'l> MultiHandle<'l> {
    /// Creates an executor over `handles`.
    ///
    /// # Panics
    ///
    /// If `handles` is empty.
    #[must_use]
    pub fn new(handles: Vec<Channel<'l>>, routing: Routing) -> Self {
        assert!(!handles.is_empty(), "at least one handle is required");
        let (state, homes) = (EncodedState::default(), BTreeMap::new());
        Self { handles, routing, state, turn: 0, homes }
    }

    fn send(&mut self, handle: usize, request: &Request) -> Result<Reply, String> {
        Reply::parse(&(self.handles[handle])(&request.to_line()))
    }

    /// Returns the index of the handle for a command.
    fn route(&mut self, arguments: &mut Arguments) -> Result<usize, String> {
        let stays = self.routing == Routing::ByWorker || arguments.command == "claim";
        let worker = arguments.take("worker").filter(|_| stays);
        let lease = arguments.take("lease").filter(|_| stays);
        if let Some(worker) = worker {
            let count = self.handles.len() as u64;
            return Ok(usize::try_from(number(&worker)? % count).expect("less than a length"));
        }
        if let Some(home) = lease.and_then(|name| self.homes.get(&name)) {
            return Ok(*home);
        }
        self.turn = (self.turn + 1) % self.handles.len();
        Ok(self.turn)
    }
}

impl Executor for MultiHandle<'_> {
    fn begin(&mut self, settings: WorldSettings) -> Result<bool, String> {
        (self.state, self.homes) = (EncodedState::default(), BTreeMap::new());
        let mut begun = 0;
        for handle in 0..self.handles.len() {
            match self.send(handle, &Request::Begin(settings))? {
                Reply::Begun => begun += 1,
                Reply::Skipped => {}
                Reply::Executed(..) => return Err("unexpected reply to `begin`".to_owned()),
            }
        }
        match begun {
            0 => Ok(false),
            _ if begun == self.handles.len() => Ok(true),
            _ => Err(format!("only {begun} of {} handles can begin", self.handles.len())),
        }
    }

    fn execute(&mut self, line: &str) -> Result<CommandOutput, String> {
        let mut arguments = Arguments::parse(line)?;
        let handle = self.route(&mut arguments)?;
        if let Some(name) = arguments.take("as") {
            self.homes.insert(name, handle);
        }
        let request = Request::Execute(self.state.clone(), line.to_owned());
        match self.send(handle, &request)? {
            Reply::Executed(state, output) => {
                self.state = state;
                Ok(output)
            }
            Reply::Begun | Reply::Skipped => Err("unexpected reply to `execute`".to_owned()),
        }
    }
}

/// Serves the requests of a [`MultiHandle`] with one coordinator.
#[expect(missing_debug_implementations, reason = "a backend need not show itself")]
pub struct HandleServer<B: ScriptBackend> {
    backend: B,
    /// Present once a script has begun.
    world: Option<World<B>>,
}

impl<B: ScriptBackend> HandleServer<B> {
    /// Creates a server that starts a coordinator of `backend` for every script. All handles begin
    /// the same scripts, so the n-th start of each must open the same store.
    pub const fn new(backend: B) -> Self {
        Self { backend, world: None }
    }

    /// Handles one request line and returns the reply line.
    pub fn answer(&mut self, line: &str) -> String {
        match Request::parse(line).and_then(|request| self.handle(request)) {
            Ok(reply) => reply.to_line(),
            Err(message) => Reply::error_line(&message),
        }
    }

    fn handle(&mut self, request: Request) -> Result<Reply, String> {
        match request {
            Request::Begin(settings) => {
                // Drop the old coordinator first, so that it closes its store.
                self.world = None;
                self.world = self.backend.start(settings).map(World::new);
                Ok(if self.world.is_some() { Reply::Begun } else { Reply::Skipped })
            }
            Request::Execute(state, line) => {
                let world = self.world.as_mut().ok_or("no script has begun")?;
                world.state = state.read()?;
                let output = world.execute(&line)?;
                Ok(Reply::Executed(EncodedState::of(&world.state), output))
            }
        }
    }
}
