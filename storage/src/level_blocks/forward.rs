//! Block stores that wrap another one: the methods that they pass on unchanged.

/// Methods of [`LevelBlocks`](crate::level_blocks::LevelBlocks) that call the same method of the
/// wrapped store in field `$inner`. The macro stands in the wrapper's `impl` block beside the
/// methods that the wrapper changes: `forward_blocks!(inner: allocate free used);`. Without
/// `read_many` the wrapper's own `read` gets each block.
#[macro_export]
macro_rules! forward_blocks {
    ($inner:tt: $($method:ident)+) => { $($crate::forward_blocks!(@$method $inner);)+ };
    (@block_bytes $inner:tt) => {
        fn block_bytes(&self) -> usize {
            self.$inner.block_bytes()
        }
    };
    (@allocate $inner:tt) => {
        fn allocate(&self, count: usize) -> ::strandline_base::Result<Vec<u64>> {
            self.$inner.allocate(count)
        }
    };
    (@read $inner:tt) => {
        fn read(&self, block: u64) -> ::strandline_base::Result<Vec<u8>> {
            self.$inner.read(block)
        }
    };
    (@read_many $inner:tt) => {
        fn read_many(&self, blocks: &[u64]) -> ::strandline_base::Result<Vec<Vec<u8>>> {
            self.$inner.read_many(blocks)
        }
    };
    (@write $inner:tt) => {
        fn write(&self, blocks: &[(u64, Vec<u8>)]) -> ::strandline_base::Result<()> {
            self.$inner.write(blocks)
        }
    };
    (@sync $inner:tt) => {
        fn sync(&self) -> ::strandline_base::Result<()> {
            self.$inner.sync()
        }
    };
    (@free $inner:tt) => {
        fn free(&self, blocks: &[u64]) {
            self.$inner.free(blocks);
        }
    };
    (@used $inner:tt) => {
        fn used(&self) -> usize {
            self.$inner.used()
        }
    };
    (@set_used $inner:tt) => {
        fn set_used(&self, blocks: &[u64]) {
            self.$inner.set_used(blocks);
        }
    };
    (@begin_image $inner:tt) => {
        fn begin_image(&self) {
            self.$inner.begin_image();
        }
    };
    (@put_image $inner:tt) => {
        fn put_image(&self, image: &[u8]) -> ::strandline_base::Result<()> {
            self.$inner.put_image(image)
        }
    };
    (@image $inner:tt) => {
        fn image(&self) -> ::strandline_base::Result<Option<Vec<u8>>> {
            self.$inner.image()
        }
    };
}
