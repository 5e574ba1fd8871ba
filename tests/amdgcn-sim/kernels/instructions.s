/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel per instruction that compilers emit rarely. Each lane has four dwords in v2..v5 and
 * leaves two in v6, v7, which begin as v5, v4; s8..s11 are lane 0's dwords. */
.text

.macro begin name
    .globl \name
    .p2align 8
    .type \name,@function
\name:
    s_load_dwordx4 s[0:3], s[0:1], 0x0
    v_lshlrev_b32 v1, 4, v0
    s_waitcnt lgkmcnt(0)
    global_load_dwordx4 v[2:5], v1, s[2:3]
    v_lshlrev_b32 v1, 3, v0
    s_waitcnt vmcnt(0)
    v_mov_b32 v6, v5
    v_mov_b32 v7, v4
    v_readfirstlane_b32 s8, v2
    v_readfirstlane_b32 s9, v3
    v_readfirstlane_b32 s10, v4
    v_readfirstlane_b32 s11, v5
    s_nop 4
.endm

.macro end name
    s_nop 4
    s_mov_b64 exec, -1
    global_store_dwordx2 v1, v[6:7], s[0:1]
    s_endpgm
.L\name\()_end:
    .size \name, .L\name\()_end-\name
    .rodata
    .p2align 6
    .amdhsa_kernel \name
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
        .amdhsa_kernarg_size 16
        .amdhsa_group_segment_fixed_size 1024
        .amdhsa_next_free_vgpr 40
        .amdhsa_next_free_sgpr 32
        .amdhsa_accum_offset 32
        .amdhsa_float_denorm_mode_32 3
    .end_amdhsa_kernel
    .text
.endm

.macro one name, text:vararg
    begin \name
    \text
    end \name
.endm

/* a scalar result, copied to every lane */
.macro scalar name, text:vararg
    begin \name
    \text
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
    end \name
.endm

one i_bfe_i32, v_bfe_i32 v6, v2, v3, v4
one i_alignbit, v_alignbit_b32 v6, v2, v3, v4
one i_alignbyte, v_alignbyte_b32 v6, v2, v3, v4
one i_perm, v_perm_b32 v6, v2, v3, v4
one i_bfi, v_bfi_b32 v6, v2, v3, v4
one i_med3_i32, v_med3_i32 v6, v2, v3, v4
one i_med3_u32, v_med3_u32 v6, v2, v3, v4
one i_sad_u8, v_sad_u8 v6, v2, v3, v4
one i_mad_i32_i24, v_mad_i32_i24 v6, v2, v3, v4
one i_mul_hi_u32_u24, v_mul_hi_u32_u24 v6, v2, v3
one i_ffbh_i32, v_ffbh_i32 v6, v2
one i_bcnt, v_bcnt_u32_b32 v6, v2, v3
one i_xad, v_xad_u32 v6, v2, v3, v4
one i_add_sat, v_add_i32 v6, v2, v3 clamp
one i_sub_sat, v_sub_u32_e64 v6, v2, v3 clamp
one i_pack_i16, v_cvt_pk_i16_i32 v6, v2, v3
one i_dot4, v_dot4_i32_i8 v6, v2, v3, v4
one i_swap, v_swap_b32 v6, v7
begin i_agpr
    v_accvgpr_write_b32 a3, v2
    s_nop 3
    v_accvgpr_read_b32 v6, a3
end i_agpr
one i_mad_u64, v_mad_u64_u32 v[6:7], vcc, v2, v3, v[4:5]
begin i_carry
    v_add_co_u32 v6, vcc, v2, v4
    v_addc_co_u32 v7, vcc, v3, v5, vcc
end i_carry
begin i_borrow
    v_sub_co_u32 v6, vcc, v2, v4
    v_subb_co_u32 v7, vcc, v3, v5, vcc
end i_borrow
one i_lshrrev_b64, v_lshrrev_b64 v[6:7], v2, v[4:5]
one i_ashrrev_i64, v_ashrrev_i64 v[6:7], v2, v[4:5]
one i_writelane, v_writelane_b32 v6, s8, 7
begin i_exec
    v_cmpx_lt_u32 v2, v3
    v_mov_b32 v6, 1
end i_exec
begin i_cmp_sgpr
    v_cmp_gt_i32_e64 s[14:15], v2, v3
    s_nop 4
    v_cndmask_b32_e64 v6, v4, v5, s[14:15]
end i_cmp_sgpr

one s_sdwa_bytes, v_add_u32_sdwa v6, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1
one s_sdwa_sext, v_add_u32_sdwa v6, sext(v2), v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:BYTE_0
one s_sdwa_preserve, v_or_b32_sdwa v6, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_0
one s_sdwa_pad, v_and_b32_sdwa v6, v2, v3 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:DWORD

one f_clamp, v_add_f32_e64 v6, v2, v3 clamp
begin f_omod
    v_mul_f32_e64 v6, v2, v3 mul:4
    v_mul_f32_e64 v7, v2, v3 div:2
end f_omod
one f_modifiers, v_fma_f32 v6, -|v2|, v3, |v4|
begin f_class
    v_cmp_class_f32 vcc, v2, v3
    s_nop 4
    v_cndmask_b32_e64 v6, 0, 1, vcc
end f_class
begin f_unordered
    v_cmp_nlt_f32 vcc, v2, v3
    s_nop 4
    v_cndmask_b32_e64 v6, 0, 1, vcc
    v_cmp_u_f32 vcc, v2, v3
    s_nop 4
    v_cndmask_b32_e64 v7, 0, 1, vcc
end f_unordered
begin f_frexp
    v_frexp_mant_f32 v6, v2
    v_frexp_exp_i32_f32 v7, v2
end f_frexp
one f_fract, v_fract_f32 v6, v2
begin f_inline
    v_mul_f32 v6, 0.15915494, v2
    v_add_f32 v7, -4.0, v2
end f_inline
begin f_flush
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
    v_mul_f32 v6, v2, v3
    v_add_f32 v7, v2, v3
end f_flush
begin f_mixlo
    v_fma_mixlo_f16 v6, v2, v3, v4 op_sel:[1,0,0] op_sel_hi:[1,0,0]
    v_fma_mixhi_f16 v7, v2, -v3, 1.0 op_sel_hi:[1,0,0]
end f_mixlo
one f_mix, v_fma_mix_f32 v6, v2, v3, v4 op_sel:[0,1,0] op_sel_hi:[1,1,0]
one f_dot2, v_dot2_f32_f16 v6, v2, v3, v4
one f_pk_mov, v_pk_mov_b32 v[6:7], v[2:3], v[4:5] op_sel:[1,0]
one f_pk_neg, v_pk_add_f32 v[6:7], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0] neg_lo:[0,1] neg_hi:[1,0]
one f_half_opsel, v_fma_f16 v6, v2, v3, v4 op_sel:[1,0,0,1]
one f_pk_half, v_pk_fma_f16 v6, v2, v3, v4 op_sel:[0,1,0] op_sel_hi:[1,0,1] neg_lo:[1,0,0]

begin c_bfe
    s_bfe_u32 s12, s8, 0x80004
    s_bfe_i32 s13, s8, 0x80004
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_bfe
scalar c_shift64, s_lshl_b64 s[12:13], s[8:9], 20
scalar c_ashr64, s_ashr_i64 s[12:13], s[8:9], 13
begin c_add64
    s_add_u32 s12, s8, s10
    s_addc_u32 s13, s9, s11
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_add64
begin c_sub64
    s_sub_u32 s12, s8, s10
    s_subb_u32 s13, s9, s11
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_sub64
begin c_overflow
    s_add_i32 s12, s8, s9
    s_cselect_b32 s13, 1, 0
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_overflow
begin c_minmax
    s_min_i32 s12, s8, s9
    s_max_u32 s13, s8, s9
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_minmax
begin c_bits
    s_brev_b32 s12, s8
    s_bcnt1_i32_b64 s13, s[8:9]
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_bits
begin c_find
    s_ff1_i32_b64 s12, s[8:9]
    s_flbit_i32 s13, s9
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_find
begin c_pack
    s_pack_ll_b32_b16 s12, s8, s9
    s_pack_lh_b32_b16 s13, s8, s9
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_pack
scalar c_andn, s_andn2_b64 s[12:13], s[8:9], s[10:11]
begin c_bitcmp
    s_bitcmp1_b32 s8, 5
    s_cselect_b32 s12, 1, 0
    s_cmp_lg_u64 s[8:9], s[10:11]
    s_cselect_b32 s13, 1, 0
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_bitcmp
begin c_constant
    s_movk_i32 s12, 0x8001
    s_mov_b32 s13, 100
    s_addk_i32 s13, 0xfff0
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_constant
begin c_mul
    s_mul_i32 s12, s8, s9
    s_mul_hi_i32 s13, s8, s9
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_mul
begin c_saveexec
    s_mov_b64 s[14:15], 0xff
    s_and_saveexec_b64 s[16:17], s[14:15]
    s_mov_b64 s[12:13], exec
    s_mov_b64 exec, s[16:17]
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_saveexec
begin c_call
    s_mov_b32 s12, 1
    s_getpc_b64 s[14:15]
    s_add_u32 s14, s14, 20
    s_addc_u32 s15, s15, 0
    s_setpc_b64 s[14:15]
    s_mov_b32 s12, 2
    s_nop 0
    s_mov_b32 s13, 3
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_call
begin c_loop
    s_mov_b32 s12, 0
    s_mov_b32 s13, 10
1:
    s_add_u32 s12, s12, s13
    s_sub_u32 s13, s13, 1
    s_cmp_lg_u32 s13, 0
    s_cbranch_scc1 1b
    s_nop 0
    v_mov_b32 v6, s12
    v_mov_b32 v7, s13
end c_loop

begin l_read2st64
    v_lshlrev_b32 v8, 2, v0
    ds_write2st64_b32 v8, v2, v3 offset1:2
    s_waitcnt lgkmcnt(0)
    ds_read2st64_b32 v[6:7], v8 offset0:2 offset1:0
    s_waitcnt lgkmcnt(0)
end l_read2st64
begin l_d16
    v_lshlrev_b32 v8, 2, v0
    ds_write_b32 v8, v2
    s_waitcnt lgkmcnt(0)
    ds_read_u16_d16_hi v6, v8 offset:2
    ds_read_i8 v7, v8 offset:1
    s_waitcnt lgkmcnt(0)
end l_d16
begin l_cmpst
    v_lshlrev_b32 v8, 2, v0
    ds_write_b32 v8, v2
    s_waitcnt lgkmcnt(0)
    ds_cmpst_rtn_b32 v6, v8, v2, v3
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v7, v8
    s_waitcnt lgkmcnt(0)
end l_cmpst
begin l_inc
    v_lshlrev_b32 v8, 2, v0
    ds_write_b32 v8, v2
    s_waitcnt lgkmcnt(0)
    ds_inc_rtn_u32 v6, v8, v3
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v7, v8
    s_waitcnt lgkmcnt(0)
end l_inc

one x_unknown, s_sendmsg sendmsg(MSG_INTERRUPT)
one x_register, v_mov_b32 v38, v2
one x_hardware, s_getreg_b32 s12, hwreg(HW_REG_TRAPSTS)
one x_cbsz, v_mfma_f32_4x4x1f32 a[0:3], v2, v3, 0 cbsz:1
begin x_pending
    v_lshlrev_b32 v8, 2, v0
    ds_write_b32 v8, v2
    s_barrier
end x_pending

.amdgpu_metadata
amdhsa.version:
  - 1
  - 2
amdhsa.kernels: []
.end_amdgpu_metadata
