//! `sum` and `avg` with PostgreSQL's types and without overflow.
//!
//! | input | sum | avg |
//! |---|---|---|
//! | smallint, integer | bigint, checked | numeric, 16 fractional digits |
//! | bigint | numeric(38,0) | numeric, 16 fractional digits |
//! | numeric(p,s) | numeric(38,s) | numeric, max(16,s) fractional digits |
//! | real | real, added in double precision | double precision |
//! | double precision | double precision | double precision |
//! | interval | interval | interval |
//!
//! Integers and numerics add up in 128 bits ([`exact`]), floats in double precision ([`inexact`]).
//!
//! Difference from PostgreSQL: the scale of an average of exact values is fixed by the type.

pub mod exact;
pub mod groups;
pub mod inexact;
pub mod plain;

use super::arithmetic::as_decimal;
use super::decimal::AVERAGE_SCALE;
use super::error::invalid;
use super::types::sql_name;
use datafusion::arrow::datatypes::{
    DataType, Decimal64Type, Decimal128Type, Field, FieldRef, Int16Type, Int32Type, Int64Type,
    IntervalUnit,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use exact::{Finish, with_exact_type};
use groups::ExactGroups;
use inexact::FloatGroups;
use plain::{DistinctSum, ExactSum};
use std::sync::Arc;
use strandline_base::SqlState;

/// The functions of this module.
pub fn functions() -> Vec<Arc<AggregateUDF>> {
    let both = [Kind::Sum, Kind::Average];
    both.map(|kind| Arc::new(AggregateUDF::from(Aggregate::new(kind))))
        .to_vec()
}

/// The function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `sum`
    Sum,
    /// `avg`
    Average,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    kind: Kind,
    signature: Signature,
}

/// The type in which an input type is summed.
fn input_type(kind: Kind, data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => DataType::Int16,
        DataType::UInt16 | DataType::Int32 => DataType::Int32,
        DataType::UInt32 | DataType::Int64 => DataType::Int64,
        DataType::Null => DataType::Float64,
        DataType::Float16 | DataType::Float32 if kind == Kind::Sum => DataType::Float32,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Interval(_) | DataType::Duration(_) => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        other => as_decimal(other)?,
    })
}

/// The conversion of the sum of an input type; `None` for types without exact sums.
pub fn finish(kind: Kind, data_type: &DataType) -> Option<Finish> {
    let scale = match data_type {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => 0,
        DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => *scale,
        _ => return None,
    };
    Some(match (kind, data_type) {
        (Kind::Average, _) => Finish::Average {
            from: scale,
            to: scale.max(AVERAGE_SCALE as i8),
        },
        (Kind::Sum, DataType::Int16 | DataType::Int32) => Finish::Bigint,
        (Kind::Sum, _) => Finish::Numeric { scale },
    })
}

impl Aggregate {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    fn finish_of(&self, args: &AccumulatorArgs) -> Option<Finish> {
        finish(self.kind, args.expr_fields[0].data_type())
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Sum => "sum",
            Kind::Average => "avg",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let undefined = || {
            let types: Vec<String> = arg_types.iter().map(sql_name).collect();
            let call = format!("{}({})", self.name(), types.join(", "));
            invalid(
                SqlState::UNDEFINED_FUNCTION,
                format!("function {call} does not exist"),
            )
        };
        match arg_types {
            [one] => Ok(vec![input_type(self.kind, one).ok_or_else(undefined)?]),
            _ => Err(undefined()),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(match finish(self.kind, &arg_types[0]) {
            Some(finish) => finish.data_type(),
            None => arg_types[0].clone(),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let input = args.input_fields[0].data_type();
        let finish = finish(self.kind, input);
        let sum_type = match &finish {
            Some(finish) => finish.state_type(),
            None => inexact::state_type(input),
        };
        let sum_name = format_state_name(args.name, "sum");
        if args.is_distinct {
            let item = Field::new_list_field(sum_type, true);
            return Ok(vec![Arc::new(Field::new_list(sum_name, item, true))]);
        }
        let mut fields = vec![Arc::new(Field::new(sum_name, sum_type, true))];
        if !matches!(finish, Some(Finish::Bigint | Finish::Numeric { .. })) {
            let count_name = format_state_name(args.name, "count");
            fields.push(Arc::new(Field::new(count_name, DataType::Int64, true)));
        }
        Ok(fields)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.finish_of(&args) {
            Some(finish) if args.is_distinct => Ok(Box::new(DistinctSum::new(finish))),
            Some(finish) => Ok(Box::new(ExactSum::new(finish))),
            None => {
                let input = args.expr_fields[0].data_type();
                inexact::accumulator(self.kind, input, args.is_distinct)
            }
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
            && (self.finish_of(&args).is_some() || args.expr_fields[0].data_type().is_floating())
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let input = args.expr_fields[0].data_type();
        let Some(finish) = self.finish_of(&args) else {
            return Ok(Box::new(FloatGroups::new(self.kind, input.clone())));
        };
        with_exact_type!(input, P => {
            Ok(Box::new(ExactGroups::<P>::new(finish)))
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
