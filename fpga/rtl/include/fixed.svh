// Rounding, saturation and scale mantissas: fpga/golden/fixed.py as functions.
//
// Include inside a module (no guard: each module gets its own copy). All functions are purely
// combinational. rnd of a wide value in one cycle is a barrel shifter and an adder, so at full
// clock put a register after it, or register rnd_shift*() and finish with rnd_add*() in the
// next stage: rnd(x, s) = rnd_add(rnd_shift(x, s)), exactly.
// Arguments end in _i and variables in _v, so that they hide no signal of the module.

/* verilator lint_off UNUSEDSIGNAL */
/* verilator lint_off VARHIDDEN */
// The shift of every rnd: a 32-bit operand clamped to -7..62.
function automatic logic signed [6:0] clamp_shift(input logic signed [31:0] shift_i);
    if (shift_i < -32'sd7) clamp_shift = -7'sd7;
    else if (shift_i > 32'sd62) clamp_shift = 7'sd62;
    else clamp_shift = shift_i[6:0];
endfunction

// rnd(x, s) of a 64-bit value. A left shift (s < 0, at most 7) must not overflow: |x| < 2^56 there.
function automatic logic signed [63:0] rnd64(input logic signed [63:0] x_i,
                                             input logic signed [6:0] shift_i);
    logic [6:0] left_v;
    logic [6:0] below_v;
    logic carry_v;
    begin
        left_v = 7'd0 - shift_i;
        below_v = shift_i - 7'd1;
        carry_v = x_i[below_v[5:0]];
        if (shift_i[6]) rnd64 = x_i <<< left_v[2:0];
        else if (shift_i == 7'sd0) rnd64 = x_i;
        else rnd64 = (x_i >>> shift_i[5:0]) + $signed({63'd0, carry_v});
    end
endfunction

// The same for a 48-bit value (|x| < 2^40 for a left shift).
function automatic logic signed [47:0] rnd48(input logic signed [47:0] x_i,
                                             input logic signed [6:0] shift_i);
    logic signed [54:0] shifted_v;
    begin
        shifted_v = rnd_shift48(x_i, shift_i);
        rnd48 = rnd_add48(shifted_v);
    end
endfunction

// First half of rnd48: value * 2^7 with the bit below the result's unit place kept.
// Result: {result before rounding, half}. One barrel shifter.
function automatic logic signed [54:0] rnd_shift48(input logic signed [47:0] x_i,
                                                   input logic signed [6:0] shift_i);
    logic [6:0] amount_v;
    logic signed [54:0] left_v;
    logic signed [54:0] wide_v;
    begin
        amount_v = shift_i - 7'd1;
        left_v = {{7{x_i[47]}}, x_i} <<< (7'd1 - shift_i);
        wide_v = {{7{x_i[47]}}, x_i};
        rnd_shift48 = shift_i < 7'sd1 ? left_v : wide_v >>> amount_v[5:0];
    end
endfunction

// Second half: one adder.
function automatic logic signed [47:0] rnd_add48(input logic signed [54:0] shifted_i);
    logic signed [53:0] sum_v;
    begin
        sum_v = shifted_i[54:1] + {53'd0, shifted_i[0]};
        rnd_add48 = sum_v[47:0];
    end
endfunction

// First half of rnd64 for right shifts only (s >= 1): {x >> s, half}.
function automatic logic signed [63:0] rnd_shift64(input logic signed [63:0] x_i,
                                                   input logic signed [6:0] shift_i);
    logic [6:0] amount_v;
    begin
        amount_v = shift_i - 7'd1;
        rnd_shift64 = x_i >>> amount_v[5:0];
    end
endfunction

function automatic logic signed [63:0] rnd_add64(input logic signed [63:0] shifted_i);
    rnd_add64 = (shifted_i >>> 1) + $signed({63'd0, shifted_i[0]});
endfunction

// rnd by a constant or by a shift known to be 1..31 of a 40-bit value.
function automatic logic signed [39:0] rnd40(input logic signed [39:0] x_i,
                                             input logic [4:0] shift_i);
    logic signed [39:0] shifted_v;
    begin
        shifted_v = x_i >>> (shift_i - 5'd1);
        rnd40 = (shifted_v >>> 1) + $signed({39'd0, shifted_v[0]});
    end
endfunction

// sat32: clip to +-(2^31 - 1).
function automatic logic signed [31:0] sat32(input logic signed [63:0] x_i);
    if (x_i[63:31] == 33'd0) sat32 = x_i[31:0];
    else if (!x_i[63]) sat32 = 32'sh7fffffff;
    else if ((&x_i[63:31]) && x_i[30:0] != 31'd0) sat32 = x_i[31:0];
    else sat32 = 32'sh80000001;
endfunction

// sat8: clip to +-127.
function automatic logic signed [7:0] sat8(input logic signed [63:0] x_i);
    if (x_i[63:7] == 57'd0) sat8 = x_i[7:0];
    else if (!x_i[63]) sat8 = 8'sh7f;
    else if ((&x_i[63:7]) && x_i[6:0] != 7'd0) sat8 = x_i[7:0];
    else sat8 = 8'sh81;
endfunction

// |x|. Every int32 of the card is symmetric (sat32), so 31 bits; -2^31 gives 2^31 - 1.
function automatic logic [30:0] magnitude32(input logic signed [31:0] x_i);
    logic [31:0] negated_v;
    begin
        negated_v = 32'd0 - x_i;
        if (!x_i[31]) magnitude32 = x_i[30:0];
        else if (negated_v[31]) magnitude32 = 31'h7fffffff;
        else magnitude32 = negated_v[30:0];
    end
endfunction

// L(x): bit length, 0 for 0.
function automatic logic [6:0] bit_length64(input logic [63:0] x_i);
    begin
        bit_length64 = 7'd0;
        for (int i_v = 0; i_v < 64; i_v++) if (x_i[i_v]) bit_length64 = 7'(i_v + 1);
    end
endfunction

function automatic logic [5:0] bit_length32(input logic [31:0] x_i);
    begin
        bit_length32 = 6'd0;
        for (int i_v = 0; i_v < 32; i_v++) if (x_i[i_v]) bit_length32 = 6'(i_v + 1);
    end
endfunction

// norm16 of a positive value of known bit length: its 16 leading bits, filled up with zeros.
// The exponent is length - 16.
function automatic logic [15:0] norm16_mantissa(input logic [63:0] x_i, input logic [6:0] length_i);
    logic [63:0] shifted_v;
    begin
        shifted_v = x_i << (7'd64 - length_i);
        norm16_mantissa = shifted_v[63:48];
    end
endfunction

/* verilator lint_on VARHIDDEN */
/* verilator lint_on UNUSEDSIGNAL */
