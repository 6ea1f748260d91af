//! The operations of the store coordinators, derived from the operation lists.

/// Defines the rows of an operation list as methods of a store coordinator. The context is
/// `blocking` or `asynchronous`.
///
/// A kernel command becomes a flight by its kind. Every other operation is a method of
/// [`Core`](super::core::Core) with the same name and parameters that returns a flight.
macro_rules! store_operations {
    ((blocking) $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            store_operations!(@body self, fly(), $kind $how, $name($($arg),*))
        }
    )* };
    ((asynchronous) $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        async fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            store_operations!(@body self, fly_async(.await), $kind $how, $name($($arg),*))
        }
    )* };

    (@body $self:ident, $fly:ident $wait:tt,
        under_lease($now:ident, $lease:ident, $command:expr), $($call:tt)*) => {
        store_operations!(@fly $self, $fly $wait, on_shard($now, $command))
    };
    (@body $self:ident, $fly:ident $wait:tt,
        split($now:ident, $lease:ident, $command:expr), $($call:tt)*) => {{
        let command = ($command)($self.core.split_children_max());
        store_operations!(@fly $self, $fly $wait, on_shard($now, command))
    }};
    (@body $self:ident, $fly:ident $wait:tt,
        grant($now:ident, $worker:ident, $scratch:ident, $command:expr), $($call:tt)*) => {{
        let command = ($command)($self.core.fresh_grant());
        let granted =
            store_operations!(@fly $self, $fly $wait, grant($now, $worker, command, $scratch))?;
        // The flight is over, so its borrow of the scratch has ended.
        Ok(granted.show($scratch))
    }};
    (@body $self:ident, $fly:ident $wait:tt,
        create($now:ident, $command:expr), $($call:tt)*) => {{
        let created = store_operations!(@fly $self, $fly $wait, on_run($now, $command));
        created.map(IdempotentOutcome::into_inner)
    }};
    // `on_shard`, `on_run`, `transition` and `delete` are methods of `Core`.
    (@body $self:ident, $fly:ident $wait:tt,
        $kind:ident($now:ident, $command:expr), $($call:tt)*) => {
        store_operations!(@fly $self, $fly $wait, $kind($now, $command))
    };
    (@body $self:ident, $fly:ident $wait:tt, $kind:ident(), $($call:tt)*) => {
        store_operations!(@fly $self, $fly $wait, $($call)*)
    };

    (@fly $self:ident, $fly:ident($($wait:tt)*), $flight:ident($($arg:expr),*)) => {
        $fly(&mut $self.store, $self.core.$flight($($arg),*))$($wait)*
    };
}
pub(super) use store_operations;
