//! Futures that nest as deeply as the user's views do: each level is polled with stack enough for
//! planning one more query.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// With less stack than this a new piece is taken, bytes.
const RED_ZONE: usize = 512 << 10;
/// The size of a new piece, bytes.
const NEW_STACK: usize = 2 << 20;

/// What a statement may need on its caller's stack, bytes.
const STATEMENT_STACK: usize = 4 << 20;
/// The size of the piece it gets if there is less, bytes.
const STATEMENT_PIECE: usize = 16 << 20;

/// Runs a statement with room on the stack for expressions as deep as the parser lets them be.
pub(crate) fn with_room<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STATEMENT_STACK, STATEMENT_PIECE, run)
}

/// A boxed future that is polled with room on the stack.
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
