//! Devices and files that wrap another one: the methods that they pass on unchanged.

/// Methods of a [`Device`](crate::Device) or [`File`](crate::File) that call the same method of
/// the wrapped object in field `$inner`. The macro stands in the wrapper's `impl` block beside the
/// methods that the wrapper changes: `forward!(inner: remove rename list);`.
#[macro_export]
macro_rules! forward {
    ($inner:tt: $($method:ident)+) => { $($crate::forward!(@$method $inner);)+ };
    (@create $inner:tt) => {
        fn create(
            &self,
            name: &str,
        ) -> ::strandline_base::Result<::std::sync::Arc<dyn $crate::File>> {
            self.$inner.create(name)
        }
    };
    (@create_on $inner:tt) => {
        fn create_on(
            &self,
            tier: $crate::Tier,
            name: &str,
        ) -> ::strandline_base::Result<::std::sync::Arc<dyn $crate::File>> {
            self.$inner.create_on(tier, name)
        }
    };
    (@open $inner:tt) => {
        fn open(
            &self,
            name: &str,
        ) -> ::strandline_base::Result<::std::sync::Arc<dyn $crate::File>> {
            self.$inner.open(name)
        }
    };
    (@remove $inner:tt) => {
        fn remove(&self, name: &str) -> ::strandline_base::Result<()> {
            self.$inner.remove(name)
        }
    };
    (@rename $inner:tt) => {
        fn rename(&self, from: &str, to: &str) -> ::strandline_base::Result<()> {
            self.$inner.rename(from, to)
        }
    };
    (@list $inner:tt) => {
        fn list(&self) -> ::strandline_base::Result<Vec<String>> {
            self.$inner.list()
        }
    };
    (@sync_directory $inner:tt) => {
        fn sync_directory(&self) -> ::strandline_base::Result<()> {
            self.$inner.sync_directory()
        }
    };
    (@lock $inner:tt) => {
        fn lock(&self) -> ::strandline_base::Result<Box<dyn Send + Sync>> {
            self.$inner.lock()
        }
    };
    (@may_fill_up $inner:tt) => {
        fn may_fill_up(&self) -> bool {
            self.$inner.may_fill_up()
        }
    };
    (@location $inner:tt) => {
        fn location(&self) -> String {
            self.$inner.location()
        }
    };
    (@directory_number $inner:tt) => {
        fn directory_number(&self) -> Option<u64> {
            self.$inner.directory_number()
        }
    };
    (@is_stored $inner:tt) => {
        fn is_stored(&self, name: &str) -> ::strandline_base::Result<bool> {
            self.$inner.is_stored(name)
        }
    };
    (@queue $inner:tt) => {
        fn queue(
            &self,
            tier: $crate::Tier,
            depth: usize,
        ) -> ::strandline_base::Result<::std::sync::Arc<dyn $crate::Queue>> {
            self.$inner.queue(tier, depth)
        }
    };
    (@is_written_once $inner:tt) => {
        fn is_written_once(&self, tier: $crate::Tier) -> bool {
            self.$inner.is_written_once(tier)
        }
    };
    (@request_stats $inner:tt) => {
        fn request_stats(&self) -> Vec<$crate::RequestStats> {
            self.$inner.request_stats()
        }
    };
    (@tiers $inner:tt) => {
        fn tiers(&self) -> Option<&$crate::TieredDevice> {
            self.$inner.tiers()
        }
    };
    (@name $inner:tt) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }
    };
    (@read_exact_at $inner:tt) => {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> ::strandline_base::Result<()> {
            self.$inner.read_exact_at(buf, offset)
        }
    };
    (@read_batch $inner:tt) => {
        fn read_batch(&self, reads: &mut [$crate::ReadAt<'_>]) -> ::strandline_base::Result<()> {
            self.$inner.read_batch(reads)
        }
    };
    (@write_all_at $inner:tt) => {
        fn write_all_at(&self, buf: &[u8], offset: u64) -> ::strandline_base::Result<()> {
            self.$inner.write_all_at(buf, offset)
        }
    };
    (@sync $inner:tt) => {
        fn sync(&self) -> ::strandline_base::Result<()> {
            self.$inner.sync()
        }
    };
    (@len $inner:tt) => {
        fn len(&self) -> ::strandline_base::Result<u64> {
            self.$inner.len()
        }
    };
    (@set_len $inner:tt) => {
        fn set_len(&self, len: u64) -> ::strandline_base::Result<()> {
            self.$inner.set_len(len)
        }
    };
}
