// The bytes of openapi.json. Declared in main/api/openapi.cpp.
    .global chaski_openapi_begin
    .global chaski_openapi_end
    .section .rodata
chaski_openapi_begin:
    .incbin "main/api/openapi.json"
chaski_openapi_end:
    .section .note.GNU-stack, "", %progbits
