//! The suite through the asynchronous traits: a coordinator that several handles share.
//!
//! [`Shared`] behaves like the client of a server. Every operation is pending once before it is
//! done, several handles work on one store from several threads, and a reply can be lost. It
//! writes only what the asynchronous traits require, so their own bodies are run as well.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use gossip_contracts::identity::FenceEpoch;
use gossip_coordination::operations::*;
use gossip_coordination::*;

use crate::blocking::Blocking;
use crate::conformance_tests::coordinator;
use crate::{Ability, ConformanceTarget, FenceFloors, RaceJob, Settings, check_sequences, run_all};

/// A coordinator behind a lock, shared by several handles.
#[derive(Clone)]
struct Shared {
    store: Arc<Mutex<InMemoryCoordinator>>,
    /// Whether to lose the reply to the next commit of this handle.
    loses_reply: bool,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, InMemoryCoordinator> {
        self.store.lock().unwrap()
    }

    fn deliver<V, E: From<InfraError>>(&mut self, answer: Result<V, E>) -> Result<V, E> {
        if answer.is_err() || !std::mem::take(&mut self.loses_reply) {
            return answer;
        }
        let (operation, message) = ("shared.reply", "the reply was lost".into());
        Err(InfraError::Transient { operation, message }.into())
    }
}

/// Pending at the first poll and ready at the second.
struct Turn(bool);

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Defines methods that lock the coordinator. The reply of a method that may commit can be lost.
macro_rules! through_the_lock {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        async fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            Turn(false).await;
            through_the_lock!(@body self, $name $kind ($($arg),*))
        }
    )* };

    // Each renewal has a reply of its own.
    (@body $self:ident, renew_many $kind:ident
        ($now:ident, $tenant:ident, $leases:ident, $results:ident)) => {{
        $self.store().renew_many($now, $tenant, $leases, $results);
        let delivered: Vec<_> = $results.drain(..).map(|result| $self.deliver(result)).collect();
        $results.extend(delivered);
    }};
    (@body $self:ident, $name:ident read ($($arg:ident),*)) => {
        $self.store().$name($($arg),*)
    };
    (@body $self:ident, $name:ident $kind:ident ($($arg:ident),*)) => {{
        let result = $self.store().$name($($arg),*);
        $self.deliver(result)
    }};
}

impl AsyncCoordinationBackend for Shared {
    for_each_shard_operation! { through_the_lock () }
}

impl AsyncRunManagement for Shared {
    for_each_run_operation! { through_the_lock () }
}

impl AsyncShardClaiming for Shared {
    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        self.store().reserve_claim(now, tenant, worker)
    }
}

impl FenceFloors for Blocking<Shared> {
    fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError> {
        self.get_ref().store().raise_fence_floor(now, tenant, run, at_least)
    }
}

/// Handles on a shared coordinator, raced by threads.
struct SharedHandles;

impl ConformanceTarget for SharedHandles {
    type Backend = Blocking<Shared>;

    fn name(&self) -> &str {
        "handles on a shared coordinator, asynchronous"
    }

    /// Events belong to the lock holder, not to a handle.
    fn lacks(&self) -> &'static [Ability] {
        &[Ability::Events]
    }

    fn fresh(&self, settings: Settings) -> Blocking<Shared> {
        let store = Arc::new(Mutex::new(coordinator(settings)));
        Blocking::new(Shared { store, loses_reply: false })
    }

    fn another_handle(&self, backend: &Blocking<Shared>) -> Option<Blocking<Shared>> {
        Some(Blocking::new(backend.get_ref().clone()))
    }

    fn sibling_handle(&self, backend: &Blocking<Shared>) -> Option<Blocking<Shared>> {
        self.another_handle(backend)
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut Blocking<Shared>) -> bool {
        backend.get_mut().loses_reply = true;
        true
    }
}

#[test]
fn handles_on_a_shared_coordinator_conform() {
    let ran = run_all(&SharedHandles, &mut |case| println!("{}::{}", case.topic, case.name));
    println!("{ran} cases");
}

#[test]
fn sequences_through_a_shared_handle_are_answered_as_the_model_answers() {
    check_sequences(&SharedHandles, 1_000..1_050, 100);
}
