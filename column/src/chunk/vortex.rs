//! The only module that uses Vortex.
//!
//! Blocks of floats are serialized Vortex arrays. Only the four encodings in [`ENCODINGS`] are
//! allowed in writes and reads. All are members of Vortex's frozen `core` edition 2025.05, which
//! every later release promises to read. An array's tree names its encodings by their position in
//! that list, so the list may only grow at its end.
//!
//! Vortex's own checks are not sufficient: a damaged tree can make it panic. Callers verify the
//! checksum first, and [`caught`] turns remaining panics into corruption errors.

use arrow_buffer::Buffer as ArrowBuffer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use strandline_base::{Error, Result};
use vortex_array::arrays::PrimitiveArray;
use vortex_array::builders::{ArrayBuilder, PrimitiveBuilder};
use vortex_array::dtype::{DType, NativePType, Nullability};
use vortex_array::memory::BufferAllocatorRef;
use vortex_array::serde::{SerializeOptions, SerializedArray};
use vortex_array::validity::Validity;
use vortex_array::{
    ArrayContext, ArrayRef, ExecutionCtx, IntoArray, VortexSessionExecute, array_session,
};
use vortex_buffer::{Alignment, Buffer, ByteBuffer};
use vortex_session::VortexSession;
use vortex_session::registry::{Id, ReadContext};

/// The allowed encodings; a tree's encoding number is the position in this list.
pub(super) const ENCODINGS: [&str; 4] = [
    "vortex.primitive",
    "fastlanes.bitpacked",
    "fastlanes.for",
    "vortex.alp",
];

/// The alignment of buffers that Vortex's kernels need, in bytes.
const ALIGNMENT: usize = 64;

struct Vortex {
    session: VortexSession,
    ids: Vec<Id>,
    read: ReadContext,
}

static VORTEX: LazyLock<Vortex> = LazyLock::new(|| {
    let session = array_session();
    vortex_fastlanes::initialize(&session);
    vortex_alp::initialize(&session);
    let ids: Vec<Id> = ENCODINGS.iter().map(|&id| Id::from(id)).collect();
    Vortex {
        session,
        read: ReadContext::new(ids.clone()),
        ids,
    }
});

/// Runs a decoder, turning a panic into a corruption error with the panic's message.
pub(super) fn caught<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let reason = panic.downcast_ref::<String>().map(String::as_str);
        let reason = reason.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(undecodable(
            reason.unwrap_or("panic without a message").to_owned(),
        ))
    })
}

/// A failed decode: the bytes are not the output of an encoder.
pub(super) fn undecodable(reason: String) -> Error {
    Error::corrupt("encoded values", reason)
}

/// Builds an array and appends its serialized form to `out`.
pub(super) fn serialize(
    out: &mut Vec<u8>,
    build: impl FnOnce(&mut ExecutionCtx) -> Result<ArrayRef, vortex_error::VortexError>,
) -> Result<()> {
    let vortex = &*VORTEX;
    let allowed = vortex.ids.iter().copied().collect();
    let context = ArrayContext::new(vortex.ids.clone()).with_allowed_ids(allowed);
    let parts = build(&mut vortex.session.create_execution_ctx())
        .and_then(|array| array.serialize(&context, &vortex.session, &SerializeOptions::default()))
        .map_err(|e| Error::internal(format!("encoding values failed: {e}")))?;
    for part in parts {
        out.extend_from_slice(part.as_slice());
    }
    Ok(())
}

/// A non-null primitive array over a copy of `values`.
pub(super) fn primitive<T: NativePType>(values: &[T]) -> ArrayRef {
    PrimitiveArray::new(Buffer::<T>::copy_from(values), Validity::NonNullable).into_array()
}

/// The values of one type of consecutive blocks, decoded into one buffer.
pub(super) struct Values<T> {
    builder: PrimitiveBuilder<T>,
    context: ExecutionCtx,
}

impl<T: NativePType> Values<T> {
    /// Room for `rows` values.
    pub fn with_capacity(rows: usize) -> Self {
        let allocator = BufferAllocatorRef::static_ref();
        let builder = PrimitiveBuilder::with_capacity_in(Nullability::NonNullable, rows, allocator);
        Self {
            builder,
            context: VORTEX.session.create_execution_ctx(),
        }
    }

    /// Decodes `rows` values from a serialized array.
    ///
    /// # Errors
    /// Bytes that are not a valid array are a corruption error.
    pub fn append_serialized(&mut self, rows: usize, bytes: &[u8]) -> Result<()> {
        let vortex = &*VORTEX;
        let bytes = ByteBuffer::copy_from_aligned(bytes, Alignment::new(ALIGNMENT));
        let dtype = DType::Primitive(T::PTYPE, Nullability::NonNullable);
        let array = SerializedArray::try_from(bytes)
            .and_then(|array| array.decode(&dtype, rows, &vortex.read, &vortex.session))
            .map_err(|e| undecodable(e.to_string()))?;
        let start = self.builder.len();
        array
            .append_to_builder(&mut self.builder, &mut self.context)
            .map_err(|e| undecodable(e.to_string()))?;
        let got = self.builder.len() - start;
        if got != rows {
            return Err(undecodable(format!("expected {rows} values, got {got}")));
        }
        Ok(())
    }

    /// Appends `rows` times `value`.
    pub fn append_constant(&mut self, rows: usize, value: T) {
        self.builder.append_n_values(value, rows);
    }

    /// The values decoded so far, to be changed.
    pub fn values_mut(&mut self) -> &mut [T] {
        self.builder.values_mut()
    }

    /// The values decoded so far.
    pub fn values(&self) -> &[T] {
        self.builder.values()
    }

    /// All values as an Arrow buffer, without a copy.
    pub fn finish(mut self) -> ArrowBuffer {
        let array = self.builder.finish_into_primitive();
        array
            .to_buffer::<T>()
            .into_byte_buffer()
            .into_arrow_buffer()
    }
}
