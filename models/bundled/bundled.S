// The bundled model file, aligned for the kernels. Declared in engine/shelf/bundled.h.
    .section .rodata
    .global chaski_bundled_begin
    .global chaski_bundled_end
    .balign 64
chaski_bundled_begin:
    .incbin "models/bundled/story.quipu"
chaski_bundled_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
