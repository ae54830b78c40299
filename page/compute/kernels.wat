;; The product of matrices in float32 with SIMD: C = A B or, if $adds is not 0, C += A B.
;;
;; A is (M, K) with any strides; in B (K, N) and C (M, N), the numbers of a row are adjacent. M is a multiple of 4, N
;; of 8. Pointers and strides are in bytes. A tile of C, 4 rows by 8 columns, stays in eight vectors of four numbers
;; while $k runs along the rows of A and down the columns of B: 6 loads for 32 products. `plainProduct` in train.js is
;; the definition. After a change, python -m tests.page_kernels assembles it, once as it stands and once with each
;; product and its sum as one operation, which most browsers have.
(module
  (import "page" "memory" (memory 1))
  (func (export "multiply")
    (param $M i32) (param $N i32) (param $K i32)
    (param $A i32) (param $A_row i32) (param $A_column i32)
    (param $B i32) (param $B_row i32)
    (param $C i32) (param $C_row i32) (param $adds i32)
    (local $column i32) (local $end i32) (local $k i32) ;; $column, $end: in bytes of a row
    (local $b i32) ;; where row $k of B has the columns of the tile
    (local $a0 i32) (local $a1 i32) (local $a2 i32) (local $a3 i32) ;; where the four rows of A have column $k
    (local $c0 i32) (local $c1 i32) (local $c2 i32) (local $c3 i32) ;; where the four rows of the tile begin in C
    (local $left v128) (local $right v128) ;; the 8 columns of row $k of B
    (local $x v128) ;; a number of A, four times
    (local $l0 v128) (local $l1 v128) (local $l2 v128) (local $l3 v128) ;; the tile: columns 0 to 3 of each row
    (local $r0 v128) (local $r1 v128) (local $r2 v128) (local $r3 v128) ;; columns 4 to 7
    (local.set $end (i32.shl (local.get $N) (i32.const 2)))
    (loop $rows
      (local.set $column (i32.const 0))
      (loop $columns
        (local.set $c0 (i32.add (local.get $C) (local.get $column)))
        (local.set $c1 (i32.add (local.get $c0) (local.get $C_row)))
        (local.set $c2 (i32.add (local.get $c1) (local.get $C_row)))
        (local.set $c3 (i32.add (local.get $c2) (local.get $C_row)))
        (local.set $a0 (local.get $A))
        (local.set $a1 (i32.add (local.get $a0) (local.get $A_row)))
        (local.set $a2 (i32.add (local.get $a1) (local.get $A_row)))
        (local.set $a3 (i32.add (local.get $a2) (local.get $A_row)))
        (local.set $b (i32.add (local.get $B) (local.get $column)))
        (if (local.get $adds)
          (then
            (local.set $l0 (v128.load (local.get $c0))) (local.set $r0 (v128.load offset=16 (local.get $c0)))
            (local.set $l1 (v128.load (local.get $c1))) (local.set $r1 (v128.load offset=16 (local.get $c1)))
            (local.set $l2 (v128.load (local.get $c2))) (local.set $r2 (v128.load offset=16 (local.get $c2)))
            (local.set $l3 (v128.load (local.get $c3))) (local.set $r3 (v128.load offset=16 (local.get $c3))))
          (else
            (local.set $x (v128.const f32x4 0 0 0 0))
            (local.set $l0 (local.get $x)) (local.set $r0 (local.get $x))
            (local.set $l1 (local.get $x)) (local.set $r1 (local.get $x))
            (local.set $l2 (local.get $x)) (local.set $r2 (local.get $x))
            (local.set $l3 (local.get $x)) (local.set $r3 (local.get $x))))
        (local.set $k (local.get $K))
        (loop $along
          (local.set $left (v128.load (local.get $b)))
          (local.set $right (v128.load offset=16 (local.get $b)))
          (local.set $x (v128.load32_splat (local.get $a0)))
          (local.set $l0 (f32x4.add (local.get $l0) (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $r0 (f32x4.add (local.get $r0) (f32x4.mul (local.get $x) (local.get $right))))
          (local.set $x (v128.load32_splat (local.get $a1)))
          (local.set $l1 (f32x4.add (local.get $l1) (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $r1 (f32x4.add (local.get $r1) (f32x4.mul (local.get $x) (local.get $right))))
          (local.set $x (v128.load32_splat (local.get $a2)))
          (local.set $l2 (f32x4.add (local.get $l2) (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $r2 (f32x4.add (local.get $r2) (f32x4.mul (local.get $x) (local.get $right))))
          (local.set $x (v128.load32_splat (local.get $a3)))
          (local.set $l3 (f32x4.add (local.get $l3) (f32x4.mul (local.get $x) (local.get $left))))
          (local.set $r3 (f32x4.add (local.get $r3) (f32x4.mul (local.get $x) (local.get $right))))
          (local.set $a0 (i32.add (local.get $a0) (local.get $A_column)))
          (local.set $a1 (i32.add (local.get $a1) (local.get $A_column)))
          (local.set $a2 (i32.add (local.get $a2) (local.get $A_column)))
          (local.set $a3 (i32.add (local.get $a3) (local.get $A_column)))
          (local.set $b (i32.add (local.get $b) (local.get $B_row)))
          (br_if $along (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
        (v128.store (local.get $c0) (local.get $l0)) (v128.store offset=16 (local.get $c0) (local.get $r0))
        (v128.store (local.get $c1) (local.get $l1)) (v128.store offset=16 (local.get $c1) (local.get $r1))
        (v128.store (local.get $c2) (local.get $l2)) (v128.store offset=16 (local.get $c2) (local.get $r2))
        (v128.store (local.get $c3) (local.get $l3)) (v128.store offset=16 (local.get $c3) (local.get $r3))
        (local.set $column (i32.add (local.get $column) (i32.const 32)))
        (br_if $columns (i32.lt_u (local.get $column) (local.get $end))))
      (local.set $A (i32.add (local.get $A) (i32.shl (local.get $A_row) (i32.const 2))))
      (local.set $C (i32.add (local.get $C) (i32.shl (local.get $C_row) (i32.const 2))))
      (br_if $rows (local.tee $M (i32.sub (local.get $M) (i32.const 4)))))))
