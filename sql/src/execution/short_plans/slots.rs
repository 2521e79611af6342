//! The values of an execution: parameters, constants, and keys of outer rows; and the function that
//! reads one of them in an expression.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use parking_lot::{RwLock, RwLockReadGuard};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The values, by number; empty between two executions.
#[derive(Debug, Default)]
pub(super) struct Slots(RwLock<Vec<ScalarValue>>);

impl Slots {
    /// Sets all values.
    pub fn fill(&self, values: Vec<ScalarValue>) {
        *self.0.write() = values;
    }

    /// Sets one value.
    pub fn set(&self, at: usize, value: ScalarValue) {
        if let Some(slot) = self.0.write().get_mut(at) {
            *slot = value;
        }
    }

    /// All values.
    pub fn read(&self) -> RwLockReadGuard<'_, Vec<ScalarValue>> {
        self.0.read()
    }

    /// Forgets all values.
    pub fn clear(&self) {
        self.0.write().clear();
    }
}

/// A function without arguments that reads a slot. It is volatile, so that no rule computes it.
#[derive(Debug)]
pub(super) struct ReadSlot {
    at: usize,
    slots: Arc<Slots>,
    field: FieldRef,
    signature: Signature,
}

impl ReadSlot {
    /// `field` is the value's, and nullable.
    pub fn new(at: usize, slots: Arc<Slots>, field: FieldRef) -> Self {
        Self {
            at,
            slots,
            field,
            signature: Signature::nullary(Volatility::Volatile),
        }
    }
}

impl PartialEq for ReadSlot {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at && Arc::ptr_eq(&self.slots, &other.slots)
    }
}

impl Eq for ReadSlot {}

impl Hash for ReadSlot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.at.hash(state);
    }
}

impl ScalarUDFImpl for ReadSlot {
    fn name(&self) -> &'static str {
        "slot"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }
    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }
    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.slots.read().get(self.at) {
            Some(value) => Ok(ColumnarValue::Scalar(value.clone())),
            None => exec_err!("slot {} has no value yet", self.at),
        }
    }
}
