"""Record batches (format v2): read, build, validate, compress; columnar decoding for bulk work. See README.md."""
