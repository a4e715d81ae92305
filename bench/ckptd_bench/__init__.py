"""The measuring programs of ckptd: `bench/compare` and `bench/leak`."""
