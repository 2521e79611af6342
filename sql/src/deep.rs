//! Futures that nest as deeply as the user's views do: each level is polled with stack enough for
//! planning one more query.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// With less stack than this a new piece is taken, bytes.
const RED_ZONE: usize = 512 << 10;
/// The size of a new piece, bytes.
const NEW_STACK: usize = 2 << 20;

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
