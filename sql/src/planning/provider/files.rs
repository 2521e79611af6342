//! `FROM 'file.parquet'`: a file (or a pattern of files) as a table.

use datafusion::catalog::TableProvider;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::session_state::SessionState;
use std::path::Path;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;

/// The file at `path` as a table; its extension gives the format.
pub async fn open(path: &str, state: &SessionState) -> Result<Arc<dyn TableProvider>> {
    let (format, extension) = format_of(path)?;
    if !path.contains(['*', '?', '[']) {
        std::fs::metadata(path).map_err(|error| Error::io(format!("\"{path}\""), &error))?;
    }
    let url = ListingTableUrl::parse(path).map_err(convert)?;
    let options = ListingOptions::new(format).with_file_extension(extension);
    let schema = options
        .infer_schema(state, &url)
        .await
        .map_err(|error| convert(error).context(format!("\"{path}\"")))?;
    if schema.fields().is_empty() {
        return Err(Error::invalid(
            SqlState::BAD_COPY_FILE_FORMAT,
            format!("\"{path}\" has no columns"),
        ));
    }
    let config = ListingTableConfig::new(url)
        .with_listing_options(options)
        .with_schema(schema);
    Ok(Arc::new(ListingTable::try_new(config).map_err(convert)?))
}

fn format_of(path: &str) -> Result<(Arc<dyn FileFormat>, String)> {
    let extension = Path::new(path)
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    let format: Arc<dyn FileFormat> = match extension.to_ascii_lowercase().as_str() {
        "parquet" => Arc::new(ParquetFormat::default()),
        "csv" => Arc::new(CsvFormat::default().with_has_header(true)),
        "tsv" => Arc::new(
            CsvFormat::default()
                .with_has_header(true)
                .with_delimiter(b'\t'),
        ),
        "json" | "jsonl" | "ndjson" => Arc::new(JsonFormat::default()),
        _ => {
            return Err(Error::invalid(
                SqlState::UNDEFINED_TABLE,
                format!("\"{path}\" is not a file whose format is known"),
            )
            .with_hint(
                "Files are read as tables by their extension: parquet, csv, tsv, json, jsonl.",
            ));
        }
    };
    Ok((format, extension.to_string()))
}
