//! Futures that nest as deeply as the user's views. Each level is polled with enough stack for
//! planning one more query.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes of free stack below which a new segment is allocated.
const RED_ZONE: usize = 512 << 10;
/// Bytes of a new segment.
const NEW_STACK: usize = 2 << 20;

/// Bytes of its caller's stack that a statement may need.
const STATEMENT_STACK: usize = 4 << 20;
/// Bytes of the segment that a statement gets if less is free.
const STATEMENT_PIECE: usize = 16 << 20;

/// Runs a statement with enough stack for the deepest expression that the parser accepts.
pub(crate) fn with_room<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STATEMENT_STACK, STATEMENT_PIECE, run)
}

/// A boxed future that is polled with enough stack.
pub(crate) struct DeepFuture<'a, T>(Pin<Box<dyn Future<Output = T> + Send + 'a>>);

impl<'a, T> DeepFuture<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Box::pin(future))
    }
}

impl<T> Future for DeepFuture<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        stacker::maybe_grow(RED_ZONE, NEW_STACK, || self.0.as_mut().poll(context))
    }
}
